// The chat in a terminal: reads lines, carries out what begins with a slash, sends the rest to the model and shows the
// answer as it comes. One thread.
#pragma once

#include <string>
#include <string_view>

#include "app/chat_parameters.h"
#include "app/chat_session.h"
#include "app/conversation.h"
#include "app/line_reader.h"
#include "app/terminal.h"

namespace quarrel {

// Ollama's lines, which people compare, on standard error; `total_seconds` is the answer's, `load` the model's.
std::string timing_text(const Reply& reply, double total_seconds, double load_seconds);

class ChatLoop {
 public:
  ChatLoop(ChatSession& session, ChatParameters parameters);

  // Until the user leaves.
  void run();

 private:
  enum class Next { go_on, leave };
  struct Command {
    const char* name;
    const char* usage;
    const char* help;
    Next (ChatLoop::*act)(std::string_view argument);
  };
  static const Command kCommands[];

  struct Typed {
    LineInput input;
    bool quoted = false;  // in triple quotes: its lines are joined, and a slash at its start is no command
  };

  Typed read_message();
  LineInput read_quoted(std::string first);
  Next command(std::string_view line);
  Next send(const std::string& text);
  Next interrupted(const std::string& line);

  Next help(std::string_view argument);
  Next set(std::string_view argument);
  Next system(std::string_view argument);
  Next clear(std::string_view argument);
  Next save(std::string_view argument);
  Next load(std::string_view argument);
  Next show(std::string_view argument);
  Next bye(std::string_view argument);

  ChatSession& session_;
  ChatParameters parameters_;
  Conversation conversation_;
  Interrupts interrupts_;
  LineReader reader_;
  bool hinted_ = false;  // the last thing was Ctrl-C: another one leaves
};

}  // namespace quarrel

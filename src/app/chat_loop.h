// The chat in a terminal: reads lines, carries out what begins with a slash (chat_commands.cpp, chat_show.cpp), sends
// the rest to the model and shows the answer as it comes. Made by `run`. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "app/chat_context.h"
#include "app/chat_parameters.h"
#include "app/chat_session.h"
#include "app/conversation.h"
#include "app/line_reader.h"
#include "app/style.h"
#include "app/terminal.h"

namespace quarrel {

class ChatLoop {
 public:
  // Where a model may be: a server of this user that holds it is as good, unless it was lost.
  enum class Where : std::uint8_t { anywhere, here };
  // The model of that name or path; throws Error.
  using Open = std::function<std::unique_ptr<ChatSession>(const std::string& name, Where where)>;
  // `name`: what the session's model was asked for by; `given`: what the user wants of answers, whatever the model.
  // `context`: where questions find texts; null: nowhere. It outlives this.
  ChatLoop(std::unique_ptr<ChatSession> session, std::string name, GivenParameters given, Open open,
           ChatContext* context = nullptr);

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
  struct Subject {
    const char* name;
    const char* help;
    void (ChatLoop::*show)() const;
  };
  static const Subject kSubjects[];
  static std::vector<std::string> subject_names();

  struct Typed {
    LineInput input;
    bool quoted = false;  // in triple quotes: its lines are joined, and a slash at its start is no command
  };

  Completion complete(std::string_view text, std::size_t cursor) const;
  void say_model() const;
  void say_error(std::string_view sentence) const;
  void notice(std::string_view sentence) const;
  // A question that only "y" or "yes" affirms.
  bool confirm(std::string_view question);

  Typed read_message();
  LineInput read_quoted(std::string first);
  Next command(std::string_view line);
  Next send(const std::string& text);
  Reply reply_to(const std::string& text);
  // The conversation as it is sent: with texts before the last question, where there are some.
  Conversation sent();
  void drop_turns(const Conversation& sent);
  Reply answer(const std::string& text, const Conversation& sent);
  void end_turn(const Reply& reply);
  std::string way_on() const;
  Next after_turn();
  Next interrupted(const std::string& line);

  Next help(std::string_view argument);
  Next set(std::string_view argument);
  Next model(std::string_view argument);
  Next system(std::string_view argument);
  Next clear(std::string_view argument);
  Next save(std::string_view argument);
  Next load(std::string_view argument);
  Next show(std::string_view argument);
  Next bye(std::string_view argument);

  void show_info() const;
  void show_messages() const;
  void show_parameters() const;
  void show_system() const;
  void show_template() const;
  void show_license() const;

  // For every model of this chat.
  void give(std::string_view name, std::string_view value);

  std::unique_ptr<ChatSession> session_;
  std::string name_;  // by which its model was asked for
  GivenParameters given_;
  Open open_;
  ChatContext* const context_;
  ChatParameters parameters_;
  Conversation conversation_;
  std::size_t first_sent_ = 0;  // the messages before it were dropped from the context
  Interrupts interrupts_;
  Palette palette_{Stream::output};
  LineReader reader_;
  bool hinted_ = false;  // the last thing said was that Ctrl-C once more leaves
};

}  // namespace quarrel

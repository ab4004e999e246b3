// Completion scripts and the manual page, from a made-up program with every kind of argument.
#include <gtest/gtest.h>

#include "app/completion.h"
#include "app/man_page.h"

namespace quarrel {
namespace {

ProgramReference made_up() {
  const ArgumentReference model{.names = {"MODEL"},
                                .value = "MODEL",
                                .description = "Which model",
                                .fallback = {},
                                .kind = ArgumentKind::model,
                                .choices = {},
                                .required = true};
  const ArgumentReference threads{.names = {"-t", "--threads"},
                                  .value = "N",
                                  .description = "It's [how] many: \\n",
                                  .fallback = "4",
                                  .choices = {}};
  const ArgumentReference level{.names = {"--level"},
                                .value = "NAME",
                                .description = ".begins with a dot",
                                .fallback = {},
                                .kind = ArgumentKind::choice,
                                .choices = {"low", "high"}};
  return {.name = "quarrel",
          .version = "1.2.3",
          .description = "Does things.",
          .options = {{.names = {"--version"}, .value = {}, .description = "Print it", .fallback = {}, .choices = {}}},
          .commands = {{.name = "go",
                        .aliases = {"walk"},
                        .description = "Go somewhere",
                        .positionals = {model},
                        .options = {threads, level},
                        .footer = "Example:\n  quarrel go -t 4"}}};
}

void expect_parts(const std::string& text, std::initializer_list<std::string> parts) {
  for (const std::string& part : parts)
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in:\n" << text;
}

TEST(ManPage, EscapesWhatRoffWouldRead) {
  expect_parts(man_page(made_up()), {".TH QUARREL 1 \"\" \"quarrel 1.2.3\"", "quarrel \\- does things\n", ".SS go\n",
                                     "\\fB\\-t\\fR, \\fB\\-\\-threads\\fR \\fIN\\fR\n", "It's [how] many: \\en [4]\n",
                                     "\n\\&.begins with a dot (low, high)\n", "Also called \\fBwalk\\fR.",
                                     "  quarrel go \\-t 4\n", ".SH EXIT STATUS", "\\fB130\\fR"});
}

TEST(Completion, OffersWhatFitsTheArgument) {
  expect_parts(bash_completion(made_up()), {"_quarrel_words 'go walk --version'", "go|walk)", "-t|--threads) :; return",
                                            "--level) _quarrel_words 'low high'", "0) _quarrel_models"});
  expect_parts(zsh_completion(made_up()),
               {"#compdef quarrel\n", "'go:Go somewhere'", "'walk:Go somewhere'",
                "'(-t --threads)-t[It'\\''s \\[how\\] many\\: \\\\n]:N: '",
                "'--level[.begins with a dot]:NAME:(low high)'", "'1:MODEL:_quarrel_models'"});
  expect_parts(fish_completion(made_up()),
               {"-a 'go walk' -d 'Go somewhere'",
                "'__fish_seen_subcommand_from go walk' -s t -l threads -x -d 'It\\'s [how] many: \\\\n'",
                "-l level -x -a 'low high'", "'__fish_seen_subcommand_from go walk' -F -a '(__quarrel_models)'"});
}

}  // namespace
}  // namespace quarrel

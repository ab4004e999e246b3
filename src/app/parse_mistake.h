// What is wrong with a command line, in a sentence for people: the parser knows, but says it in its own words. Used by
// main. One thread.
#pragma once

#include <string>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace quarrel {

// "there is no option '--temprature'; did you mean --temperature? (see quarrel run --help)"
std::string parse_mistake(const CLI::App& app, const CLI::ParseError& error);

}  // namespace quarrel

// A service with a toy whose vectors and texts lie in a vector store in memory.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "server/served_toy.h"
#include "support/fake_longbow.h"

namespace quarrel::test {

// The one store, whoever connects; it outlives the service.
class SharedStore {
 public:
  SharedStore() : made_(std::make_unique<FakeLongbow>()), store_(made_.get()) {}
  ServiceOptions options(const std::filesystem::path& journals) {
    ServiceOptions options;
    options.longbow = {.hosts = {"localhost"}, .journals = journals};
    options.longbow.connect = [this](const LongbowAddress&, const LongbowOptions&) {
      ++connections_;
      if (!no_client_.empty()) fail(ErrorKind::unsupported, "{}", no_client_);
      return std::move(made_);
    };
    return options;
  }

 protected:
  std::unique_ptr<FakeLongbow> made_;
  FakeLongbow* const store_;
  int connections_ = 0;
  std::string no_client_;  // why none can be made; empty: one can
  TempDir journals_;
};

class StoredToy : protected SharedStore, public ServedToy {
 protected:
  StoredToy() : ServedToy(options(journals_.path())) {}

  struct Answer {
    unsigned status = 0;
    http::Headers headers;
    Json body;
  };
  using Handler = void (*)(Service&, const std::shared_ptr<http::Exchange>&);
  Answer ask(Handler handler, const Json& body, http::Headers headers = {}) {
    const auto made =
        std::make_shared<http::Exchange>(http::Request{.headers = std::move(headers),
                                                       .body = body.dump(),
                                                       .record = service_->new_record({.route = "POST /test"})},
                                         std::size_t{1} << 20, [] {});
    handler(*service_, made);
    http::Exchange::Output output;
    write_until([&] { return (output = made->take()).has_head; });
    return {.status = output.head.status, .headers = output.head.headers, .body = Json::parse(output.head.body)};
  }
  static Json texts(std::vector<Json> list) {
    return {{"to", "longbow://localhost/texts"}, {"texts", std::move(list)}};
  }
};

}  // namespace quarrel::test

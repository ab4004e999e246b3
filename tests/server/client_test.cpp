// Addresses of registries: one way to write each, and nothing that two readers could take for two things.
#include "server/http/client.h"

#include <gtest/gtest.h>

namespace quarrel::http {
namespace {

TEST(Urls, AreTakenApart) {
  const auto plain = Url::parse("http://Registry.Example/v2/a?b=c");
  ASSERT_TRUE(plain);
  EXPECT_FALSE(plain->secure);
  EXPECT_EQ(plain->host, "registry.example");
  EXPECT_EQ(plain->port, 80);
  EXPECT_EQ(plain->target, "/v2/a?b=c");
  EXPECT_EQ(plain->authority(), "registry.example");
  const auto secure = Url::parse("https://127.0.0.1:8443");
  ASSERT_TRUE(secure);
  EXPECT_TRUE(secure->secure);
  EXPECT_EQ(secure->authority(), "127.0.0.1:8443");
  EXPECT_EQ(secure->target, "/");
  EXPECT_EQ(Url::parse("https://h:443/")->authority(), "h");
  EXPECT_EQ(Url::parse("http://[::1]:5000/x")->authority(), "[::1]:5000");
  EXPECT_EQ(Url::parse("http://[::1]:5000/x")->host, "::1");
}

TEST(Urls, WhatCouldMeanSomethingElseIsNone) {
  for (const char* text : {"",
                           "h",
                           "//h/x",
                           "ftp://h/x",
                           "file:///etc/passwd",
                           "http:///x",
                           "http://",
                           "http://user@h/x",
                           "http://h:/x",
                           "http://h:0/x",
                           "http://h:70000/x",
                           "http://h:80a/x",
                           "http://h\\@other/x",
                           "http://h/a b",
                           "http://h/a#b",
                           "http://h/\x01",
                           "http://[::1/x",
                           "http://[g::1]/x",
                           "http://%68/x",
                           "http://h?x",
                           "http://h/a\\b",
                           "http://\xc3\xa9/x"}) {
    EXPECT_FALSE(Url::parse(text)) << text;
  }
}

TEST(Fetching, AsksNobodyWhoIsNotNamed) {
  bool refused = false;
  try {
    fetch(*Url::parse("http://127.0.0.1:1/x"), {.allowed_hosts = {"127.0.0.1", "127.0.0.1:2"}},
          [](unsigned, std::span<const std::byte>) {});
  } catch (const std::exception& error) {
    refused = std::string(error.what()).find("no host that models may be fetched from") != std::string::npos;
  }
  EXPECT_TRUE(refused);
}

}  // namespace
}  // namespace quarrel::http

// Encrypted connections: whose certificate is trusted, and whose is not. And addresses of either kind.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "base/subprocess.h"
#include "flight/flight_fixture.h"
#include "support/temp_dir.h"

namespace quarrel::test {
namespace {

std::string content_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class Tls : public LongbowTest {
 protected:
  void SetUp() override {
    if (environment("QUARREL_LONGBOW")) GTEST_SKIP() << "Longbow has no TLS";
    make_certificate("right");
    make_certificate("wrong");
    start({.certificate = content_of(folder_ / "right.crt"), .key = content_of(folder_ / "right.key"), .token = "t"});
  }

  // One that signs itself.
  void make_certificate(const std::string& name) const {
    const ProcessResult made =
        run_process({"openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                     "-days", "2", "-subj", "/CN=" + name, "-addext", "subjectAltName=IP:127.0.0.1", "-keyout",
                     (folder_ / (name + ".key")).string(), "-out", (folder_ / (name + ".crt")).string()});
    ASSERT_EQ(made.exit_code, 0) << made.output;
  }

  TempDir folder_;
};

TEST_F(Tls, ATrustedCertificateIsEnough) {
  client_ = connect({.token = "t", .root_certificates = content_of(folder_ / "right.crt")});
  put_and_wait(0, 3);
  EXPECT_EQ(ids().size(), 3u);
  EXPECT_EQ(client_->info(dataset()).batches, 1);
}

TEST_F(Tls, AnotherCertificateIsRefused) {
  const auto careful = connect({.token = "t", .root_certificates = content_of(folder_ / "wrong.crt")});
  const auto error = longbow_error([&] { careful->info(dataset()); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->kind(), ErrorKind::io);
  EXPECT_EQ(error->after_failure(), AfterFailure::give_up) << error->what();
  EXPECT_TRUE(has(error->what(), "no trusted connection")) << error->what();
  EXPECT_EQ(server_->calls(), 0);
  const auto stream = careful->put(dataset(), schema());
  const auto put = longbow_error([&] {
    stream->append(*batch(0, 1));
    stream->close();
  });
  ASSERT_TRUE(put);
  EXPECT_TRUE(has(put->what(), "no trusted connection")) << put->what();
  EXPECT_EQ(server_->calls(), 0);
}

TEST_F(Tls, AServerWithoutItIsNotSpokenTo) {
  longbow::Server open;
  address_.data_port = static_cast<std::uint16_t>(open.data_port());
  address_.meta_port = static_cast<std::uint16_t>(open.meta_port());
  const auto careful = connect({.attempts = 1, .token = "t", .root_certificates = content_of(folder_ / "right.crt")});
  const auto error = longbow_error([&] { careful->info(dataset()); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->kind(), ErrorKind::io);
  EXPECT_EQ(open.calls(), 0);
}

TEST_F(Tls, AClientShowsItsCertificateWhereOneIsAskedFor) {
  make_certificate("client");
  start({.certificate = content_of(folder_ / "right.crt"),
         .key = content_of(folder_ / "right.key"),
         .client_authority = content_of(folder_ / "client.crt")});
  client_ = connect({.root_certificates = content_of(folder_ / "right.crt"),
                     .client_certificate = content_of(folder_ / "client.crt"),
                     .client_key = content_of(folder_ / "client.key")});
  put_and_wait(0, 3);
  EXPECT_EQ(client_->info(dataset()).batches, 1) << "on the other port too";
  const std::int64_t calls = server_->calls();
  const auto unknown = connect({.attempts = 1, .root_certificates = content_of(folder_ / "right.crt")});
  const auto error = longbow_error([&] { unknown->info(dataset()); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->kind(), ErrorKind::io) << error->what();
  EXPECT_EQ(server_->calls(), calls);
}

class Ipv6 : public LongbowTest {
 protected:
  void SetUp() override {
    if (environment("QUARREL_LONGBOW")) GTEST_SKIP() << "the test server's own address";
    try {
      start({.host = "::1"});
    } catch (const std::exception& error) {
      GTEST_SKIP() << "this machine has no IPv6: " << error.what();
    }
  }
};

TEST_F(Ipv6, IsAnAddressLikeAnother) {
  put_and_wait(0, 3);
  EXPECT_EQ(ids().size(), 3u);
  const auto error = longbow_error([&] { client_->info("nothing"); });
  ASSERT_TRUE(error);
  EXPECT_TRUE(has(error->what(), "[::1]:")) << error->what();
}

}  // namespace
}  // namespace quarrel::test

// Addresses and filters as people write them, and what is said where there is no module.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "flight/address.h"
#include "flight/longbow.h"
#include "flight/module.h"

namespace quarrel {
namespace {

std::string refusal(const std::string& text, DatasetPart part = DatasetPart::required) {
  try {
    read_longbow_address(text, part);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage) << text;
    return error.what();
  }
  return "";
}

TEST(LongbowAddress, HasTheStoresPortsWhereItNamesNone) {
  const LongbowAddress address = read_longbow_address("longbow://store/docs");
  EXPECT_EQ(address, (LongbowAddress{.host = "store", .dataset = "docs"}));
  EXPECT_EQ(address.data_port, 3000);
  EXPECT_EQ(address.meta_port, 3001);
}

TEST(LongbowAddress, NamesItsPorts) {
  EXPECT_EQ(read_longbow_address("longbow://10.0.0.7:4000/docs?meta=4001"),
            (LongbowAddress{.host = "10.0.0.7", .data_port = 4000, .meta_port = 4001, .dataset = "docs"}));
}

TEST(LongbowAddress, TlsStandsInTheScheme) {
  EXPECT_TRUE(read_longbow_address("longbow+tls://store.example/docs").tls);
  EXPECT_FALSE(read_longbow_address("longbow://store.example/docs").tls);
}

TEST(LongbowAddress, TakesAnIpv6AddressInBrackets) {
  EXPECT_EQ(read_longbow_address("longbow://[::1]/docs").host, "::1");
  EXPECT_EQ(read_longbow_address("longbow://[2001:db8::7]:4000/docs").data_port, 4000);
}

// Journals and lists of hosts go by the text: one host must not have two.
TEST(LongbowAddress, AHostHasOneForm) {
  EXPECT_EQ(longbow_address_text(read_longbow_address("longbow://LocalHost/Docs")),
            longbow_address_text(read_longbow_address("longbow://localhost/Docs")));
  EXPECT_EQ(read_longbow_address("longbow://LOCALHOST/Docs").host, "localhost");
  EXPECT_EQ(read_longbow_address("longbow://LOCALHOST/Docs").dataset, "Docs");
  for (const char* same : {"2001:DB8::7", "2001:0db8:0:0:0:0:0:7", "2001:db8:0000::0007"}) {
    EXPECT_EQ(read_longbow_address("longbow://[" + std::string(same) + "]/docs").host, "2001:db8::7");
  }
}

TEST(LongbowAddress, SlashesAndEncodedCharactersBelongToTheDataset) {
  EXPECT_EQ(read_longbow_address("longbow://store/tenant/docs").dataset, "tenant/docs");
  EXPECT_EQ(read_longbow_address("longbow://store/a%20b%3Fc%23d%2Fe").dataset, "a b?c#d/e");
  EXPECT_EQ(read_longbow_address("longbow://store/gr%C3%BC%C3%9Fe").dataset,
            "gr\xC3\xBC\xC3\x9F"
            "e");
}

TEST(LongbowAddress, MayNameTheServerAlone) {
  EXPECT_EQ(read_longbow_address("longbow://store", DatasetPart::optional).dataset, "");
  EXPECT_EQ(read_longbow_address("longbow://store/?meta=5", DatasetPart::optional).meta_port, 5);
  EXPECT_NE(refusal("longbow://store").find("names no dataset"), std::string::npos);
  EXPECT_NE(refusal("longbow://store/").find("names no dataset"), std::string::npos);
}

TEST(LongbowAddress, SaysWhatIsWrong) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "begins with neither"},
      {"http://store/docs", "begins with neither"},
      {"LONGBOW://store/docs", "begins with neither"},
      {"longbow:store/docs", "begins with neither"},
      {"longbow:///docs", "no host"},
      {"longbow://:3000/docs", "no host"},
      {"longbow://a b/docs", "not the name of a host"},
      {"longbow://-store/docs", "not the name of a host"},
      {"longbow://" + std::string(254, 'a') + "/docs", "not the name of a host"},
      {"longbow://user@store/docs", "name a user"},
      {"longbow://user:word@store/docs", "name a user"},
      {"longbow://::1/docs", "in brackets"},
      {"longbow://[::1/docs", "not closed"},
      {"longbow://[store]/docs", "not an IPv6"},
      {"longbow://[::1]3000/docs", "follow the bracket"},
      {"longbow://store:/docs", "not a port"},
      {"longbow://store:0/docs", "not a port"},
      {"longbow://store:65536/docs", "not a port"},
      {"longbow://store:-1/docs", "not a port"},
      {"longbow://store:30x/docs", "not a port"},
      {"longbow://store/docs?meta=", "not a port"},
      {"longbow://store/docs?", "only meta=PORT"},
      {"longbow://store/docs?meta", "only meta=PORT"},
      {"longbow://store/docs?tls=1", "only meta=PORT"},
      {"longbow://store/docs?meta=1&meta=2", "twice"},
      {"longbow://store/docs?meta=1&", "only meta=PORT"},
      {"longbow://store/docs#part", "%23"},
      {"longbow://store/a%2", "hexadecimal"},
      {"longbow://store/a%zz", "hexadecimal"},
      {"longbow://store/a%", "hexadecimal"},
      {"longbow://store/a%00b", "control characters"},
      {"longbow://store/a%0Ab", "control characters"},
      {"longbow://store/%FF", "UTF-8"},
      {"longbow://store/" + std::string(256, 'd'), "more than 255"},
  };
  for (const auto& [text, reason] : cases) {
    EXPECT_NE(refusal(text).find(reason), std::string::npos) << text << ": " << refusal(text);
  }
}

TEST(LongbowAddress, IsTheSameAfterItWasWritten) {
  for (const std::string text : {"longbow://store/docs", "longbow+tls://[2001:db8::7]:4000/a%20b%3Fc%23d%25?meta=7",
                                 "longbow://10.0.0.7/tenant/gr%C3%BC%C3%9Fe"}) {
    const LongbowAddress address = read_longbow_address(text);
    EXPECT_EQ(read_longbow_address(longbow_address_text(address)), address) << longbow_address_text(address);
  }
  EXPECT_EQ(longbow_address_text(read_longbow_address("longbow://store/a b")), "longbow://store:3000/a%20b?meta=3001");
}

TEST(RowFilters, AreReadWithTheirSigns) {
  const std::vector<std::pair<std::string, RowFilter>> cases = {
      {"kind=news", {"kind", Comparison::equal, "news"}},
      {"kind!=news", {"kind", Comparison::not_equal, "news"}},
      {"year<1900", {"year", Comparison::less, "1900"}},
      {"year<=1900", {"year", Comparison::less_or_equal, "1900"}},
      {"year>1900", {"year", Comparison::greater, "1900"}},
      {"year>=1900", {"year", Comparison::greater_or_equal, "1900"}},
      {"text=a=b", {"text", Comparison::equal, "a=b"}},
      {"text=", {"text", Comparison::equal, ""}},
  };
  for (const auto& [text, filter] : cases) EXPECT_EQ(read_row_filter(text), filter) << text;
}

TEST(RowFilters, WithoutAFieldOrASignAreRefused) {
  for (const std::string text : {"", "kind", "=news", "kind!news", "<3"}) {
    EXPECT_THROW(read_row_filter(text), Error) << text;
  }
}

// What contradicts itself is refused before the module is looked for.
TEST(ConnectLongbow, RefusesOptionsThatContradictEachOther) {
  const LongbowAddress open = read_longbow_address("longbow://store.example/docs");
  const LongbowAddress closed = read_longbow_address("longbow+tls://store.example/docs");
  const auto refused = [](const LongbowAddress& address, const LongbowOptions& options) -> std::string {
    try {
      connect_longbow(address, options);
    } catch (const Error& error) {
      return error.kind() == ErrorKind::usage ? error.what() : "";
    }
    return "";
  };
  EXPECT_NE(refused(open, {.token = "secret"}).find("others can read it"), std::string::npos);
  EXPECT_NE(
      refused(read_longbow_address("longbow://127.evil.example/d"), {.token = "secret"}).find("others can read it"),
      std::string::npos);
  EXPECT_EQ(refused(open, {.token = "secret"}).find("secret"), std::string::npos);
  EXPECT_NE(refused(open, {.root_certificates = "pem"}).find("no TLS"), std::string::npos);
  EXPECT_NE(refused(closed, {.client_certificate = "pem"}).find("belong together"), std::string::npos);
  EXPECT_NE(refused(closed, {.token = "two words"}).find("no spaces"), std::string::npos);
  EXPECT_NE(refused(closed, {.call_timeout = {}}).find("above zero"), std::string::npos);
  EXPECT_NE(refused(closed, {.attempts = 0}).find("at least one"), std::string::npos);
}

}  // namespace
}  // namespace quarrel

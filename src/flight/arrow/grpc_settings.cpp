#include "flight/arrow/grpc_settings.h"

#include <cstddef>
#include <string>
#include <vector>

#include <climits>

namespace quarrel::flight {
namespace {

// Arrow's wheel has gRPC inside, without its headers and without a symbol of its builder to link. What is needed of
// both classes is written down here as gRPC has had it since 1.0: how grpc::ServerBuilder begins, and an option that
// sets a number. Arrow itself has set two things by then, which tell whether this is so; a further option is a copy of
// Arrow's own with another name, so that all code that runs is gRPC's.
struct NumberOption {
  const void* functions;
  std::string name;
  int value;
};

struct BuilderHead {
  const void* functions;
  int most_received;
  int most_sent;
  std::vector<NumberOption*> options;  // owned: gRPC deletes each
};

constexpr int kArrowsMostReceived = -1;  // any length
constexpr int kUnsetMostSent = INT_MIN;
constexpr const char* kArrowsOption = "grpc.so_reuseport";
constexpr std::size_t kMostOptions = 16;  // more: it is something else

}  // namespace

bool bound_grpc_server(void* server_builder, int message_bytes, std::span<const GrpcSetting> settings) {
  auto& builder = *static_cast<BuilderHead*>(server_builder);
  if (builder.most_received != kArrowsMostReceived || builder.most_sent != kUnsetMostSent) return false;
  if (builder.options.empty() || builder.options.size() > kMostOptions) return false;
  const NumberOption& known = *builder.options.front();
  if (known.name != kArrowsOption) return false;
  builder.most_received = message_bytes;
  for (const GrpcSetting& each : settings) {
    builder.options.push_back(new NumberOption{.functions = known.functions, .name = each.name, .value = each.value});
  }
  return true;
}

}  // namespace quarrel::flight

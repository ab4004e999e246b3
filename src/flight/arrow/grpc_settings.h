// What Arrow leaves open in the gRPC server below it, and what has to be bounded before a message is in memory: how
// large one may be, and that it comes as it is. Called once, before the server listens.
#pragma once

#include <span>

namespace quarrel::flight {

// gRPC's name of a channel argument.
struct GrpcSetting {
  const char* name = "";
  int value = 0;
};

// `server_builder` is what FlightServerOptions::builder_hook is given. False: it is not the builder that is known here,
// and was not touched.
bool bound_grpc_server(void* server_builder, int message_bytes, std::span<const GrpcSetting> settings);

}  // namespace quarrel::flight

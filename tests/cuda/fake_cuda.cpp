#include "cuda/fake_cuda.h"

#include <cublasLt.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace {

using quarrel::test::FakeCuda;

constexpr std::size_t kAlignment = 256;

struct Memory {
  std::size_t bytes;
  bool is_pinned;
};

struct State {
  std::mutex mutex;
  FakeCuda fake;
  std::map<void*, Memory> memory;
};

State& state() {
  static State known;
  return known;
}

thread_local cudaError_t last_error = cudaSuccess;
thread_local int captures_here = 0;  // that this thread has begun

cudaError_t noted(cudaError_t status) {
  if (status != cudaSuccess) last_error = status;
  return status;
}

// What stands at the beginning of every call that may fail.
cudaError_t fate_of(const char* call) {
  const auto& fails = state().fake.fails;
  return fails ? noted(fails(call)) : cudaSuccess;
}

void count_object(int change) {
  const std::scoped_lock lock(state().mutex);
  state().fake.objects += change;
}

cudaError_t allocate(const char* call, void** place, std::size_t bytes, bool is_pinned) {
  *place = nullptr;
  if (const cudaError_t status = fate_of(call); status != cudaSuccess) return status;
  // As with a capture of the thread's own: such calls are refused.
  if (captures_here > 0) return noted(cudaErrorStreamCaptureUnsupported);
  const std::scoped_lock lock(state().mutex);
  FakeCuda& fake = state().fake;
  if (!is_pinned && fake.device_bytes + bytes > fake.memory) return noted(cudaErrorMemoryAllocation);
  void* made = nullptr;
  if (::posix_memalign(&made, kAlignment, bytes) != 0) return noted(cudaErrorMemoryAllocation);
  std::memset(made, 0, bytes);
  state().memory[made] = {.bytes = bytes, .is_pinned = is_pinned};
  (is_pinned ? fake.pinned_bytes : fake.device_bytes) += bytes;
  *place = made;
  return cudaSuccess;
}

cudaError_t release(void* place) {
  if (place == nullptr) return cudaSuccess;
  {
    const std::scoped_lock lock(state().mutex);
    const auto found = state().memory.find(place);
    if (found == state().memory.end()) return noted(cudaErrorInvalidValue);
    (found->second.is_pinned ? state().fake.pinned_bytes : state().fake.device_bytes) -= found->second.bytes;
    state().memory.erase(found);
  }
  std::free(place);
  return cudaSuccess;
}

}  // namespace

struct CUgraph_st {
  std::vector<std::function<void()>> nodes;
};
struct CUgraphExec_st {
  std::vector<std::function<void()>> nodes;
};
struct CUstream_st {
  std::unique_ptr<CUgraph_st> captured;  // null: what is asked for is done
};
struct CUevent_st {
  std::chrono::steady_clock::time_point at;
};
struct cublasLtContext {};

namespace {

cudaError_t run(const char* call, cudaStream_t stream, std::function<void()> work) {
  if (const cudaError_t status = fate_of(call); status != cudaSuccess) return status;
  if (stream->captured) {
    stream->captured->nodes.push_back(std::move(work));
  } else {
    work();
  }
  return cudaSuccess;
}

void count_launch() {
  const std::scoped_lock lock(state().mutex);
  ++state().fake.launches;
}

template <typename Made>
cudaError_t make(const char* call, Made** made) {
  *made = nullptr;
  if (const cudaError_t status = fate_of(call); status != cudaSuccess) return status;
  *made = new Made;
  count_object(1);
  return cudaSuccess;
}

template <typename Made>
cudaError_t end(Made* made) {
  if (made == nullptr) return cudaSuccess;
  delete made;
  count_object(-1);
  return cudaSuccess;
}

template <typename Made>
cublasStatus_t describe(Made** made) {
  *made = new Made{};
  count_object(1);
  return CUBLAS_STATUS_SUCCESS;
}

template <typename Made>
cublasStatus_t forget(Made* made) {
  end(made);
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

namespace quarrel::test {

FakeCuda& fake_cuda() { return state().fake; }

void reset_fake_cuda() {
  const std::scoped_lock lock(state().mutex);
  const FakeCuda before = std::move(state().fake);
  state().fake = {};
  state().fake.device_bytes = before.device_bytes;
  state().fake.pinned_bytes = before.pinned_bytes;
  state().fake.objects = before.objects;
  last_error = cudaSuccess;
}

}  // namespace quarrel::test

extern "C" {

// ---- The device ----

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return fate_of("cudaGetDeviceCount");
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int) { return fate_of("cudaSetDevice"); }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  const FakeCuda& fake = state().fake;
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "no GPU at all");
  properties->major = fake.capability / 10;
  properties->minor = fake.capability % 10;
  properties->totalGlobalMem = fake.memory;
  properties->multiProcessorCount = fake.multiprocessors;
  properties->sharedMemPerBlockOptin = static_cast<std::size_t>(fake.shared_kib) * 1024;
  return fate_of("cudaGetDeviceProperties");
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int) {
  std::snprintf(id, static_cast<std::size_t>(length), "0000:00:00.0");
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* available, std::size_t* total) {
  const std::scoped_lock lock(state().mutex);
  *total = state().fake.memory;
  *available = *total - state().fake.device_bytes;
  const auto& fails = state().fake.fails;
  return fails ? noted(fails("cudaMemGetInfo")) : cudaSuccess;
}
cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
const char* cudaGetErrorString(cudaError_t status) { return status == cudaSuccess ? "no error" : "a made-up error"; }
const char* cudaGetErrorName(cudaError_t) { return "cudaErrorOfATest"; }

// ---- Memory ----

cudaError_t cudaMalloc(void** place, std::size_t bytes) { return allocate("cudaMalloc", place, bytes, false); }
cudaError_t cudaMallocHost(void** place, std::size_t bytes) { return allocate("cudaMallocHost", place, bytes, true); }
cudaError_t cudaFree(void* place) { return release(place); }
cudaError_t cudaFreeHost(void* place) { return release(place); }
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  return run("cudaMemcpyAsync", stream, [=] { std::memmove(to, from, bytes); });
}
cudaError_t cudaMemsetAsync(void* place, int value, std::size_t bytes, cudaStream_t stream) {
  return run("cudaMemsetAsync", stream, [=] { std::memset(place, value, bytes); });
}

// ---- Streams, events, graphs ----

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return make("cudaStreamCreateWithFlags", stream);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) { return end(stream); }
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (stream->captured) return noted(cudaErrorStreamCaptureUnsupported);
  return fate_of("cudaStreamSynchronize");
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (const cudaError_t status = fate_of("cudaStreamBeginCapture"); status != cudaSuccess) return status;
  stream->captured = std::make_unique<CUgraph_st>();
  ++captures_here;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  if (!stream->captured) return noted(cudaErrorIllegalState);
  --captures_here;
  const std::unique_ptr<CUgraph_st> captured = std::move(stream->captured);
  if (const cudaError_t status = fate_of("cudaStreamEndCapture"); status != cudaSuccess) return status;
  *graph = new CUgraph_st(*captured);
  const std::scoped_lock lock(state().mutex);
  ++state().fake.objects;
  ++state().fake.captures;
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return end(graph); }
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  if (const cudaError_t status = make("cudaGraphInstantiate", executable); status != cudaSuccess) return status;
  (*executable)->nodes = graph->nodes;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) { return end(executable); }
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t) {
  if (const cudaError_t status = fate_of("cudaGraphLaunch"); status != cudaSuccess) return status;
  for (const auto& node : executable->nodes) node();
  const std::scoped_lock lock(state().mutex);
  ++state().fake.replays;
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return make("cudaEventCreateWithFlags", event); }
cudaError_t cudaEventDestroy(cudaEvent_t event) { return end(event); }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  event->at = std::chrono::steady_clock::now();
  return fate_of("cudaEventRecord");
}
cudaError_t cudaEventSynchronize(cudaEvent_t) { return fate_of("cudaEventSynchronize"); }
cudaError_t cudaEventQuery(cudaEvent_t) { return fate_of("cudaEventQuery"); }
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  *milliseconds = std::chrono::duration<float, std::milli>(to->at - from->at).count();
  return cudaSuccess;
}

// ---- Kernels ----

cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  *attributes = {};
  attributes->ptxVersion = state().fake.capability;
  return cudaSuccess;
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void*, void**) {
  // As the real one refuses them.
  if (config->gridDim.x == 0 || config->gridDim.y == 0 || config->gridDim.z == 0 || config->blockDim.x == 0 ||
      config->dynamicSmemBytes > static_cast<std::size_t>(state().fake.shared_kib) * 1024) {
    return noted(cudaErrorInvalidConfiguration);
  }
  return run("cudaLaunchKernelExC", config->stream, count_launch);
}

// What compiled CUDA sources call when the program starts, and for launches that nobody makes here.
void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void**, const char*, char*, const char*, int, void*, void*, void*, void*, int*) {}
cudaError_t __cudaGetKernel(cudaKernel_t*, const void*) { return cudaSuccess; }
cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, std::size_t, cudaStream_t) {
  return cudaErrorNotSupported;
}
cudaError_t __cudaPopCallConfiguration(dim3*, dim3*, std::size_t*, void*) { return cudaErrorNotSupported; }

// ---- cuBLASLt ----

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  if (fate_of("cublasLtCreate") != cudaSuccess) return CUBLAS_STATUS_ALLOC_FAILED;
  return describe(handle);
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) { return forget(handle); }
const char* cublasLtGetStatusName(cublasStatus_t) { return "CUBLAS_STATUS_OF_A_TEST"; }
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* made, cublasComputeType_t, cudaDataType_t) {
  return describe(made);
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t made) { return forget(made); }
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t, const void*,
                                              std::size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* made, cudaDataType, std::uint64_t, std::uint64_t,
                                          std::int64_t) {
  return describe(made);
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t made) { return forget(made); }
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* made) { return describe(made); }
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t made) { return forget(made); }
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t,
                                                    const void*, std::size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t, int, cublasLtMatmulHeuristicResult_t[],
                                              int* count) {
  *count = 1;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t, const void*, const void*, cublasLtMatrixLayout_t,
                              const void*, cublasLtMatrixLayout_t, const void*, const void*, cublasLtMatrixLayout_t,
                              void*, cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t*, void*, std::size_t,
                              cudaStream_t stream) {
  return run("cublasLtMatmul", stream, count_launch) == cudaSuccess ? CUBLAS_STATUS_SUCCESS
                                                                    : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // extern "C"

// The host side of one kernel, at the end of the translation unit that defines it.
//
// MG_LAUNCHER(name, threads, shared_bytes, cooperative) defines, with C linkage,
//   cudaError_t name_launch(const GemmParams*, int grid, cudaStream_t)   enqueue on the current device
//   cudaError_t name_occupancy(int* ctas)                                CTAs that fit on an SM of the current device
// Both may be called from any thread. A cooperative kernel is launched only if all its CTAs can run at the same time.
#pragma once
#include <cuda_runtime.h>

#include <atomic>
#include <cstdint>

#include "params.cuh"

namespace mg_host {

constexpr int kSharedWithoutOptIn = 48 * 1024;

// Devices on which a kernel may already use its shared memory; one bit each, devices past the last bit are asked every time.
using ReadyDevices = std::atomic<uint64_t>;

inline cudaError_t allow_shared(const void* kernel, int shared_bytes, ReadyDevices& ready) {
  if (shared_bytes <= kSharedWithoutOptIn) return cudaSuccess;
  int device = 0;
  if (const cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) return error;
  const uint64_t bit = device < 64 ? uint64_t{1} << device : 0;
  if (ready.load(std::memory_order_acquire) & bit) return cudaSuccess;
  const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
  if (error == cudaSuccess) ready.fetch_or(bit, std::memory_order_release);
  return error;
}

inline cudaError_t launch(
    const void* kernel, int threads, int shared_bytes, bool cooperative, ReadyDevices& ready, const GemmParams* params, int grid,
    cudaStream_t stream) {
  if (const cudaError_t error = allow_shared(kernel, shared_bytes, ready); error != cudaSuccess) return error;
  void* arguments[] = {const_cast<GemmParams*>(params)};
  return cooperative ? cudaLaunchCooperativeKernel(kernel, dim3(grid), dim3(threads), arguments, shared_bytes, stream)
                     : cudaLaunchKernel(kernel, dim3(grid), dim3(threads), arguments, shared_bytes, stream);
}

inline cudaError_t occupancy(const void* kernel, int threads, int shared_bytes, ReadyDevices& ready, int* ctas) {
  if (const cudaError_t error = allow_shared(kernel, shared_bytes, ready); error != cudaSuccess) return error;
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(ctas, kernel, threads, shared_bytes);
}

}  // namespace mg_host

#define MG_LAUNCHER(NAME, THREADS, SHARED_BYTES, COOPERATIVE)                                                          \
  static mg_host::ReadyDevices NAME##_ready{0};                                                                        \
  extern "C" cudaError_t NAME##_launch(const GemmParams* params, int grid, cudaStream_t stream) {                      \
    const void* kernel = reinterpret_cast<const void*>(&NAME);                                                         \
    return mg_host::launch(kernel, THREADS, SHARED_BYTES, COOPERATIVE, NAME##_ready, params, grid, stream);            \
  }                                                                                                                    \
  extern "C" cudaError_t NAME##_occupancy(int* ctas) {                                                                 \
    return mg_host::occupancy(reinterpret_cast<const void*>(&NAME), THREADS, SHARED_BYTES, NAME##_ready, ctas);        \
  }

// For builds without CUDA: the registry's row with nothing of it.
#pragma once
struct GemmParams;
typedef int cudaError_t;
typedef void* cudaStream_t;
struct Row {
  const char* name;
  const char* arch;
  int threads, shared_bytes, m_tile, thread_n, thread_k;
  cudaError_t (*launch)(const GemmParams*, int, cudaStream_t);
  cudaError_t (*occupancy)(int*);
};
extern const Row kRows[];
extern const int kRowCount;

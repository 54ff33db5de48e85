// A row of the registry: what the host needs to launch one kernel. Everything else follows from its name, in Python.
#pragma once
#include <cuda_runtime.h>

#include "params.cuh"

struct Row {
  const char* name;
  const char* arch;      // architecture of the native code, sm_90 for instance
  int threads;
  int shared_bytes;      // dynamic shared memory of a CTA
  int m_tile, thread_n, thread_k;
  cudaError_t (*launch)(const GemmParams*, int grid, cudaStream_t);
  cudaError_t (*occupancy)(int* ctas);
};

extern const Row kRows[];      // sorted by name
extern const int kRowCount;

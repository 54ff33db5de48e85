// Words that every other device header and every emitted kernel uses.
//
// These headers are the only place with inline PTX. A kernel touches memory only through them, so that the
// same kernel text runs on the CPU against the headers of the same names in ../sim (see docs/simulator.md).
#pragma once
#include <cstdint>

#define MG_DEVICE __device__ __forceinline__
#define MG_KERNEL(threads, min_ctas) extern "C" __global__ __launch_bounds__(threads, min_ctas)
#define MG_PARAM const __grid_constant__

// Plain register groups. Trivial structs of words: the compiler keeps them in registers.
struct U2 { uint32_t x, y; };
struct U4 { uint32_t x, y, z, w; };
struct F4 { float x, y, z, w; };
struct FragB { uint32_t lo, hi; };         // B operand of m16n8k16: rows k 0..7 (lo) and 8..15 (hi) of one n8 column tile

MG_DEVICE int thread_index() { return static_cast<int>(threadIdx.x); }
MG_DEVICE int block_index() { return static_cast<int>(blockIdx.x); }
MG_DEVICE int block_count() { return static_cast<int>(gridDim.x); }
MG_DEVICE void cta_sync() { __syncthreads(); }

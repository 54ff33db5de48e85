// The CPU's counterpart of ../device/prelude.cuh: a kernel is a plain function that every thread of a CTA runs as a fiber.
// Headers of this folder only forward to machine/, which models the hardware and is compiled once (docs/simulator.md).
#pragma once
#include <cstdint>
#include "machine/calls.hpp"

#define MG_DEVICE inline
#define MG_KERNEL(threads, min_ctas) extern "C"
#define MG_PARAM const

// CUDA's own, without a namespace; <algorithm> would double the time it takes to compile a kernel.
template <class T> constexpr T min(T a, T b) { return b < a ? b : a; }
template <class T> constexpr T max(T a, T b) { return a < b ? b : a; }

struct U2 { uint32_t x, y; };
struct U4 { uint32_t x, y, z, w; };
struct F4 { float x, y, z, w; };
struct FragB { uint32_t lo, hi; };

MG_DEVICE int thread_index() { return sim::thread_index(); }
MG_DEVICE int block_index() { return sim::block_index(); }
MG_DEVICE int block_count() { return sim::block_count(); }
MG_DEVICE void cta_sync(MG_SITE) { sim::barrier(line); }

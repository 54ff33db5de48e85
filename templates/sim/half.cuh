// Arithmetic on pairs of 16-bit floats, rounded once to nearest even, subnormals kept; see ../device/half.cuh.
#pragma once
#include "prelude.cuh"

namespace f16 {
MG_DEVICE uint32_t fma2(uint32_t a, uint32_t b, uint32_t c) { return sim::fma_pair(sim::Format::f16, a, b, c); }
MG_DEVICE uint32_t add2(uint32_t a, uint32_t b) { return fma2(a, 0x3c003c00u, b); }
MG_DEVICE uint32_t sub2(uint32_t a, uint32_t b) { return fma2(b, 0xbc00bc00u, a); }
MG_DEVICE uint32_t mul2(uint32_t a, uint32_t b) { return fma2(a, b, 0x80008000u); }
MG_DEVICE float low(uint32_t pair) { return sim::widen(sim::Format::f16, pair & 0xffffu); }
MG_DEVICE float high(uint32_t pair) { return sim::widen(sim::Format::f16, pair >> 16); }
MG_DEVICE uint32_t pack(float low, float high) { return sim::narrow_pair(sim::Format::f16, low, high); }
}  // namespace f16

namespace bf16 {
MG_DEVICE uint32_t fma2(uint32_t a, uint32_t b, uint32_t c) { return sim::fma_pair(sim::Format::bf16, a, b, c); }
MG_DEVICE uint32_t add2(uint32_t a, uint32_t b) { return fma2(a, 0x3f803f80u, b); }
MG_DEVICE uint32_t sub2(uint32_t a, uint32_t b) { return fma2(b, 0xbf80bf80u, a); }
MG_DEVICE uint32_t mul2(uint32_t a, uint32_t b) { return fma2(a, b, 0x80008000u); }
MG_DEVICE float low(uint32_t pair) { return sim::widen(sim::Format::bf16, pair & 0xffffu); }
MG_DEVICE float high(uint32_t pair) { return sim::widen(sim::Format::bf16, pair >> 16); }
MG_DEVICE uint32_t pack(float low, float high) { return sim::narrow_pair(sim::Format::bf16, low, high); }
}  // namespace bf16

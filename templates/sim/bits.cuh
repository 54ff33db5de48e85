// Bit work on 32-bit words; see ../device/bits.cuh.
#pragma once
#include "prelude.cuh"

template <int kTable> MG_DEVICE uint32_t lop3(uint32_t a, uint32_t b, uint32_t c) { return sim::lop3(a, b, c, kTable); }
MG_DEVICE uint32_t prmt(uint32_t a, uint32_t b, uint32_t selector) { return sim::permute(a, b, selector); }
MG_DEVICE uint32_t low_twice(uint32_t pair) { return prmt(pair, pair, 0x1010); }
MG_DEVICE uint32_t high_twice(uint32_t pair) { return prmt(pair, pair, 0x3232); }

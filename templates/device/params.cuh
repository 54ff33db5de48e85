// The one argument of every kernel, filled by the host; sizes in elements, strides in elements.
#pragma once
#include <cstdint>

struct GemmParams {
  const void* a;         // [m, k] activations, 16 bit, row stride lda, every row 16-byte aligned
  const void* b;         // packed weights of [k_pad, n_pad], see marlin_gen/layout
  const void* scales;    // [groups, n_pad] 16 bit, permuted per 64 columns; [1, n_pad] in natural order without groups
  const void* zeros;     // [groups, n_pad] 16 bit, permuted per 64 columns, or null for a type without zero points
  const void* bias;      // [n_pad] 16 bit in natural order, or null
  void* c;               // [m, n] 16 bit, row stride ldc
  float* partial;        // fp32 partial tiles: 2 * grid slots (schedule.slot_floats each); zeros for reduction atomic
  uint32_t* counters;    // one arrival counter per CTA of the grid; zero before the launch and again after it
  int64_t lda, ldc;
  int32_t m, n, k;       // true sizes: rows and columns beyond them are neither read (A) nor written (C)
  int32_t n_pad;         // padded width of b, scales and zeros; a multiple of thread_n
  int32_t k_tiles;       // k_pad / thread_k
  int32_t n_tiles;       // n_pad / thread_n
  int32_t columns;       // n_tiles * ceil(m / m_tile): output tiles, each a column of k_tiles weight tiles
  int32_t stripe;        // tiles of one CTA, in column-major order of (column, k tile)
};

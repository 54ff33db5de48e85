// ldmatrix, a rendezvous of the warp; see ../device/ldmatrix.cuh for which lane gets what.
#pragma once
#include "prelude.cuh"

template <int kOffset> MG_DEVICE U4 ldmatrix_x4(uint32_t addr, MG_SITE) {
  uint32_t v[4];
  sim::load_matrix(v, addr + kOffset, 4, line);
  return {v[0], v[1], v[2], v[3]};
}
template <int kOffset> MG_DEVICE FragB ldmatrix_x2(uint32_t addr, MG_SITE) {
  uint32_t v[2];
  sim::load_matrix(v, addr + kOffset, 2, line);
  return {v[0], v[1]};
}

// Shared memory by 32-bit address; see ../device/shared.cuh.
#pragma once
#include "prelude.cuh"

MG_DEVICE uint32_t shared_base() { return sim::shared_base(); }

template <int kOffset> MG_DEVICE uint32_t lds32(uint32_t addr, MG_SITE) {
  uint32_t v;
  sim::load_shared("lds32", &v, addr + kOffset, sizeof v, line);
  return v;
}
template <int kOffset> MG_DEVICE U2 lds64(uint32_t addr, MG_SITE) {
  U2 v;
  sim::load_shared("lds64", &v, addr + kOffset, sizeof v, line);
  return v;
}
template <int kOffset> MG_DEVICE U4 lds128(uint32_t addr, MG_SITE) {
  U4 v;
  sim::load_shared("lds128", &v, addr + kOffset, sizeof v, line);
  return v;
}
template <int kOffset> MG_DEVICE F4 lds_f32x4(uint32_t addr, MG_SITE) {
  F4 v;
  sim::load_shared("lds_f32x4", &v, addr + kOffset, sizeof v, line);
  return v;
}
template <int kOffset> MG_DEVICE void sts32(uint32_t addr, uint32_t v, MG_SITE) {
  sim::store_shared("sts32", &v, addr + kOffset, sizeof v, line);
}
template <int kOffset> MG_DEVICE void sts_f32(uint32_t addr, float v, MG_SITE) {
  sim::store_shared("sts_f32", &v, addr + kOffset, sizeof v, line);
}
template <int kOffset> MG_DEVICE void sts_f32x2(uint32_t addr, float x, float y, MG_SITE) {
  const float v[2] = {x, y};
  sim::store_shared("sts_f32x2", v, addr + kOffset, sizeof v, line);
}
template <int kOffset> MG_DEVICE void sts_f32x4(uint32_t addr, F4 v, MG_SITE) {
  sim::store_shared("sts_f32x4", &v, addr + kOffset, sizeof v, line);
}

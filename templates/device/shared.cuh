// Shared memory by 32-bit address. Offsets are template arguments: they reach PTX as literals of [register + immediate].
#pragma once
#include "prelude.cuh"

MG_DEVICE uint32_t shared_base() {
  extern __shared__ __align__(1024) unsigned char mg_shared[];
  return static_cast<uint32_t>(__cvta_generic_to_shared(mg_shared));
}

template <int kOffset> MG_DEVICE uint32_t lds32(uint32_t addr) {
  uint32_t v;
  asm volatile("ld.shared.u32 %0, [%1 + %2];" : "=r"(v) : "r"(addr), "n"(kOffset) : "memory");
  return v;
}
template <int kOffset> MG_DEVICE U2 lds64(uint32_t addr) {
  U2 v;
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2 + %3];" : "=r"(v.x), "=r"(v.y) : "r"(addr), "n"(kOffset) : "memory");
  return v;
}
template <int kOffset> MG_DEVICE U4 lds128(uint32_t addr) {
  U4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4 + %5];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(addr), "n"(kOffset) : "memory");
  return v;
}
template <int kOffset> MG_DEVICE F4 lds_f32x4(uint32_t addr) {
  F4 v;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4 + %5];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(addr), "n"(kOffset) : "memory");
  return v;
}
template <int kOffset> MG_DEVICE void sts32(uint32_t addr, uint32_t v) {
  asm volatile("st.shared.u32 [%0 + %1], %2;" :: "r"(addr), "n"(kOffset), "r"(v) : "memory");
}
template <int kOffset> MG_DEVICE void sts_f32(uint32_t addr, float v) {
  asm volatile("st.shared.f32 [%0 + %1], %2;" :: "r"(addr), "n"(kOffset), "f"(v) : "memory");
}
template <int kOffset> MG_DEVICE void sts_f32x2(uint32_t addr, float x, float y) {
  asm volatile("st.shared.v2.f32 [%0 + %1], {%2, %3};" :: "r"(addr), "n"(kOffset), "f"(x), "f"(y) : "memory");
}
template <int kOffset> MG_DEVICE void sts_f32x4(uint32_t addr, F4 v) {
  asm volatile("st.shared.v4.f32 [%0 + %1], {%2, %3, %4, %5};"
               :: "r"(addr), "n"(kOffset), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w) : "memory");
}

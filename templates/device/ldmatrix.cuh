// ldmatrix: four (two) 8x8 blocks of 16-bit elements; lane l gives the address of row l%8 of block l/8.
// Lane l receives of each block the pair at row l/4, columns 2*(l%4) and 2*(l%4)+1.
#pragma once
#include "prelude.cuh"

template <int kOffset> MG_DEVICE U4 ldmatrix_x4(uint32_t addr) {
  U4 v;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4 + %5];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(addr), "n"(kOffset) : "memory");
  return v;
}
template <int kOffset> MG_DEVICE FragB ldmatrix_x2(uint32_t addr) {
  FragB v;
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2 + %3];"
               : "=r"(v.lo), "=r"(v.hi) : "r"(addr), "n"(kOffset) : "memory");
  return v;
}

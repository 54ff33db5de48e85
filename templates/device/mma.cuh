// mma.sync m16n8k16 with fp32 accumulators. With g = lane/4 and c = lane%4 (PTX ISA, "Matrix Fragments for mma.m16n8k16"):
//   A word r, half h: row g + 8*(r&1), k = 2c + h + 8*(r>>1);  B word r, half h: k = 2c + h + 8r, column g;
//   C value i: row g + 8*(i>>1), column 2c + (i&1).
#pragma once
#include "prelude.cuh"

MG_DEVICE void mma_f16(F4& c, U4 a, FragB b) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(c.x), "+f"(c.y), "+f"(c.z), "+f"(c.w)
               : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b.lo), "r"(b.hi));
}
MG_DEVICE void mma_bf16(F4& c, U4 a, FragB b) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(c.x), "+f"(c.y), "+f"(c.z), "+f"(c.w)
               : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b.lo), "r"(b.hi));
}

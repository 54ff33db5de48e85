// Arithmetic on pairs of 16-bit floats held in a word, low half first. Round to nearest even, subnormals kept (never .ftz).
#pragma once
#include "prelude.cuh"

namespace f16 {
MG_DEVICE uint32_t add2(uint32_t a, uint32_t b) { uint32_t d; asm("add.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b)); return d; }
MG_DEVICE uint32_t sub2(uint32_t a, uint32_t b) { uint32_t d; asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b)); return d; }
MG_DEVICE uint32_t mul2(uint32_t a, uint32_t b) { uint32_t d; asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b)); return d; }
MG_DEVICE uint32_t fma2(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t d; asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c)); return d;
}
MG_DEVICE float low(uint32_t pair) {
  float d; asm("{.reg .b16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, l;}" : "=f"(d) : "r"(pair)); return d;
}
MG_DEVICE float high(uint32_t pair) {
  float d; asm("{.reg .b16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, h;}" : "=f"(d) : "r"(pair)); return d;
}
MG_DEVICE uint32_t pack(float low, float high) {
  uint32_t d; asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low)); return d;
}
}  // namespace f16

namespace bf16 {
// add, sub and mul of bf16 pairs need sm_90; as an fma with one exact operand they run on sm_80 with the same bits.
MG_DEVICE uint32_t fma2(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t d; asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c)); return d;
}
MG_DEVICE uint32_t add2(uint32_t a, uint32_t b) { return fma2(a, 0x3f803f80u, b); }
MG_DEVICE uint32_t sub2(uint32_t a, uint32_t b) { return fma2(b, 0xbf80bf80u, a); }
MG_DEVICE uint32_t mul2(uint32_t a, uint32_t b) { return fma2(a, b, 0x80008000u); }
MG_DEVICE float low(uint32_t pair) { return __uint_as_float(pair << 16); }
MG_DEVICE float high(uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); }
MG_DEVICE uint32_t pack(float low, float high) {
  uint32_t d; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low)); return d;
}
}  // namespace bf16

// Bit work on 32-bit words.
#pragma once
#include "prelude.cuh"

// Any function of three words, bit by bit; kTable is its truth table with a=0xf0, b=0xcc, c=0xaa: (a & b) | c is 0xea.
template <int kTable> MG_DEVICE uint32_t lop3(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t d;
  asm("lop3.b32 %0, %1, %2, %3, %4;" : "=r"(d) : "r"(a), "r"(b), "r"(c), "n"(kTable));
  return d;
}
// Four bytes chosen from the eight of (b, a): selector nibble i names the byte that becomes byte i.
MG_DEVICE uint32_t prmt(uint32_t a, uint32_t b, uint32_t selector) { return __byte_perm(a, b, selector); }
// One half of a pair in both halves; written as moves, which the compiler can fold into the operand of packed arithmetic.
MG_DEVICE uint32_t low_twice(uint32_t pair) {
  uint32_t d; asm("{.reg .b16 l, h; mov.b32 {l, h}, %1; mov.b32 %0, {l, l};}" : "=r"(d) : "r"(pair)); return d;
}
MG_DEVICE uint32_t high_twice(uint32_t pair) {
  uint32_t d; asm("{.reg .b16 l, h; mov.b32 {l, h}, %1; mov.b32 %0, {h, h};}" : "=r"(d) : "r"(pair)); return d;
}

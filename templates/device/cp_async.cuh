// Asynchronous 16-byte copies from global to shared memory (sm_80 and newer), completed in order of commit groups.
// The shared address is one per-thread register plus a literal: ptxas 13.0 and 13.5 fold a uniform register into it together
// with a cache policy, a form that faults on sm_90 (docs/hardware.md); the linter rejects that form in SASS.
#pragma once
#include "prelude.cuh"

// A policy for data that is read once: evicted before anything else in L2.
MG_DEVICE uint64_t l2_evict_first() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
// Each copy is predicated inside the instruction, not by a branch: a stage stays one basic block, which the compiler schedules whole.
template <int kOffset> MG_DEVICE void cp_async16(uint32_t shared, const void* global, bool copy) {
  asm volatile("{.reg .pred p; setp.ne.b32 p, %3, 0; @p cp.async.cg.shared.global [%0 + %1], [%2], 16;}"
               :: "r"(shared), "n"(kOffset), "l"(global), "r"(int(copy)) : "memory");
}
template <int kOffset> MG_DEVICE void cp_async16_hint(uint32_t shared, const void* global, uint64_t policy, bool copy) {
  asm volatile("{.reg .pred p; setp.ne.b32 p, %4, 0; @p cp.async.cg.shared.global.L2::cache_hint [%0 + %1], [%2], 16, %3;}"
               :: "r"(shared), "n"(kOffset), "l"(global), "l"(policy), "r"(int(copy)) : "memory");
}
// Writes zeros, and does not touch the global address, where `read` is false.
template <int kOffset> MG_DEVICE void cp_async16_zfill(uint32_t shared, const void* global, bool copy, bool read) {
  asm volatile("{.reg .pred p, q; setp.ne.b32 p, %3, 0; setp.eq.b32 q, %4, 0; @p cp.async.cg.shared.global [%0 + %1], [%2], 16, q;}"
               :: "r"(shared), "n"(kOffset), "l"(global), "r"(int(copy)), "r"(int(read)) : "memory");
}
MG_DEVICE void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most kPending of this thread's youngest groups are still in flight.
template <int kPending> MG_DEVICE void cp_async_wait() { asm volatile("cp.async.wait_group %0;" :: "n"(kPending) : "memory"); }

// Asynchronous copies: their bytes land when the issuing thread waits for their group, not before; see ../device/cp_async.cuh.
#pragma once
#include "prelude.cuh"

MG_DEVICE uint64_t l2_evict_first() { return 0; }  // a cache policy changes no result
template <int kOffset> MG_DEVICE void cp_async16(uint32_t shared, const void* global, MG_SITE) {
  sim::copy_async(shared + kOffset, global, 16, line);
}
template <int kOffset> MG_DEVICE void cp_async16_hint(uint32_t shared, const void* global, uint64_t, MG_SITE) {
  sim::copy_async(shared + kOffset, global, 16, line);
}
template <int kOffset> MG_DEVICE void cp_async16_zfill(uint32_t shared, const void* global, int bytes, MG_SITE) {
  sim::copy_async(shared + kOffset, global, bytes, line);
}
MG_DEVICE void cp_async_commit() { sim::commit_copies(); }
template <int kPending> MG_DEVICE void cp_async_wait() { sim::wait_copies(kPending); }

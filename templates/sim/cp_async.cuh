// Asynchronous copies: their bytes land when the issuing thread waits for their group, not before; see ../device/cp_async.cuh.
#pragma once
#include "prelude.cuh"

MG_DEVICE uint64_t l2_evict_first() { return 0; }  // a cache policy changes no result
template <int kOffset> MG_DEVICE void cp_async16(uint32_t shared, const void* global, bool copy, MG_SITE) {
  if (copy) sim::copy_async(shared + kOffset, global, true, line);
}
template <int kOffset> MG_DEVICE void cp_async16_hint(uint32_t shared, const void* global, uint64_t, bool copy, MG_SITE) {
  if (copy) sim::copy_async(shared + kOffset, global, true, line);
}
template <int kOffset> MG_DEVICE void cp_async16_zfill(uint32_t shared, const void* global, bool copy, bool read, MG_SITE) {
  if (copy) sim::copy_async(shared + kOffset, global, read, line);
}
MG_DEVICE void cp_async_commit() { sim::commit_copies(); }
template <int kPending> MG_DEVICE void cp_async_wait() { sim::wait_copies(kPending); }

// What the Python side passes in and gets back; marlin_gen/simulate/native.py declares the same structs.
#pragma once
#include <cstdint>

namespace sim {

enum BufferFlags : int32_t { kReadable = 1, kWritable = 2, kInitialised = 4, kWriteOnce = 8 };

struct Buffer {
  const char* name;
  unsigned char* host;            // its bytes
  const unsigned char* allowed;   // one flag for every two bytes: may the kernel touch them; null allows all
  unsigned char* written;         // one flag for every two bytes, set when they are written; null for read-only buffers
  int64_t bytes;
  int32_t flags;
};

struct FaultRecord {
  char kind[32];
  char detail[320];
  int32_t line, cta, thread, count;  // of the first of `count` faults of this kind in this line
};

struct ConflictRecord {
  char op[16];
  int32_t line;
  int32_t unused;
  int64_t accesses, wavefronts, minimum;  // warp accesses; shared-memory wavefronts they took, and would take without conflicts
};

struct Stats {
  int64_t barriers, mma, ldmatrix, async_copies, global_loads, global_stores, wavefronts;
};

struct Launch {
  int32_t grid, threads, shared_bytes, order;  // order: 0 by index, 1 reversed, 2 shuffled and interleaved
  uint32_t seed;
  int32_t buffer_count, fault_capacity, conflict_capacity;
  int64_t max_steps;
  const Buffer* buffers;
  const void* params;
  FaultRecord* faults;
  ConflictRecord* conflicts;
  Stats* stats;
  int32_t fault_count, conflict_count;  // results
  int32_t completed;                    // whether every thread returned
};

// Where the modelled device places buffer `index`: each has a terabyte to itself, so that a stray access is told by the buffer that
// it strayed from.
constexpr int kBufferShift = 40;
constexpr uint64_t device_address(int index) {
  return (static_cast<uint64_t>(index + 1) << kBufferShift) + (uint64_t{1} << (kBufferShift - 1));
}

}  // namespace sim

// Runs the kernel compiled into this library.
extern "C" __attribute__((visibility("default"))) void mg_sim_run(sim::Launch* launch);
// The kernel, called with the address of its argument; defined beside the kernel.
extern "C" void mg_sim_kernel(const void* params);

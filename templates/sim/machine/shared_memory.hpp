// Shared memory of a CTA, with what is known about every two bytes.
#pragma once
#include <cstdint>
#include <vector>

namespace sim {

struct Thread;

constexpr uint32_t kSharedBase = 1024;  // the first bytes of a CTA's shared memory belong to the system
constexpr int kGranule = 2;             // bytes that share one state; every access is a multiple of it

// A cp.async between issue and wait.
struct AsyncCopy {
  int group, line;
  uint32_t address;
  unsigned char data[16];
};

class SharedMemory {
 public:
  explicit SharedMemory(int bytes) : data_(bytes, 0xff), state_(bytes / kGranule) {}

  // Accesses of one thread. Each reports what is wrong with it; a faulty read gives 0xff bytes, a NaN in every float type.
  void load(Thread& thread, void* to, uint32_t address, int bytes, int line);
  void store(Thread& thread, const void* from, uint32_t address, int bytes, int line);
  void begin_copy(Thread& thread, const AsyncCopy& copy);
  void land_copy(Thread& thread, const AsyncCopy& copy);

 private:
  // Line 0: never. The epoch is the number of barriers that the CTA had passed.
  struct Cell {
    int write_line = 0, write_epoch = 0, read_line = 0, read_epoch = 0, copy_line = 0;
    int16_t writer = 0, reader = 0, copier = 0;
    bool many_readers = false;  // more than one thread read in read_epoch
  };
  Cell* find(const Thread& thread, uint32_t address, int bytes, int line);
  bool may_read(const Cell& cell, const Thread& thread, uint32_t address, int line);
  bool may_write(const Cell& cell, const Thread& thread, uint32_t address, int line);

  std::vector<unsigned char> data_;
  std::vector<Cell> state_;
};

}  // namespace sim

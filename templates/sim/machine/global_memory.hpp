// Global memory: the buffers of a launch, who wrote what, and which of it other CTAs may rely on.
//
// A write becomes known to another CTA along this path, and reading it without one is a fault:
//   write -> (barrier) -> fence_gpu -> (barrier) -> atomic or pass_turn -> atomic or wait_for_turn -> fence_gpu or barrier -> read
#pragma once
#include <cstdint>
#include <map>
#include <vector>

#include "calls.hpp"
#include "launch.hpp"

namespace sim {

struct Thread;
struct Cta;

// Which writes of one CTA are known: those before time `all`, and those of thread t before `own[t]`.
struct Known {
  uint64_t all = 0;
  std::vector<uint64_t> own;
  void merge(const Known& other);
};
using KnownByCta = std::map<int, Known>;
void merge(KnownByCta& into, const KnownByCta& from);

struct ThreadOrder {
  uint64_t fence = 0, fenced_barrier = 0;  // times of the last fence, and of the last barrier before it
  KnownByCta observed, known;              // seen through atomics; and usable, after a fence
};

struct CtaOrder {
  uint64_t barrier = 0;  // time of the last one
  Known published;       // own writes that were fenced before it
  KnownByCta known;      // writes of other CTAs that all threads may use
};

class GlobalMemory {
 public:
  explicit GlobalMemory(const Launch& launch);

  void load(Thread& thread, void* to, const void* from, int bytes, Path path, int line);
  void store(Thread& thread, void* to, const void* from, int bytes, int line);
  void add(Thread& thread, float* to, float value, int line);
  uint32_t* atomic(Thread& thread, const void* at, bool write, int line);  // host address of a counter; null after a fault
  void fence(Thread& thread);
  void release(Thread& thread, const void* at);
  void acquire(Thread& thread, const void* at);
  void pass_barrier(Cta& cta);

 private:
  struct Write {
    int cta, thread, line;
    uint64_t time;
    int before;  // atomic additions: the write that this one added to; else -1
  };
  struct State {
    const Buffer* buffer;
    std::vector<int> last;  // for every two bytes of a writable buffer: index of the last write, -1 for none
  };
  struct Place {
    State* state = nullptr;
    int64_t offset = 0;
  };
  Place find(const Thread& thread, const void* address, int bytes, int needs, int line);
  bool knows(const Thread& thread, const Write& write) const;
  bool check_known(const Thread& thread, int write, const Place& place, const char* kind, const char* what, int line);
  void mark(const Place& place, int bytes, int write);

  std::vector<State> buffers_;
  std::vector<Write> writes_;
  std::map<const void*, KnownByCta> released_;
  uint64_t time_ = 0;
};

}  // namespace sim

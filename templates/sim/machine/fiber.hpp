// Fibers: threads of execution that hand over to each other by hand, with stacks from a pool.
#pragma once
#include <cstddef>
#include <vector>
#if defined(__x86_64__) && !defined(MG_SIM_UCONTEXT)
#define MG_SIM_OWN_SWITCH  // a few instructions; elsewhere ucontext, which is slower but everywhere
#else
#include <ucontext.h>
#endif

namespace sim {

// A suspended flow of execution.
struct Context {
#if defined(MG_SIM_OWN_SWITCH)
  void* stack_pointer = nullptr;
#else
  ucontext_t state;
#endif
};

constexpr size_t kStackBytes = 256 * 1024;  // address space; only pages that are touched cost memory

// Makes `context` start `entry` on `stack` when first switched to. `entry` must never return.
void prepare(Context& context, unsigned char* stack, void (*entry)());
// Suspends the caller into `from` and resumes `to`.
void switch_context(Context& from, Context& to);

// Stacks of kStackBytes with an unmapped page below each, so that an overflow is a segmentation fault and not corruption.
class StackPool {
 public:
  StackPool() = default;
  StackPool(const StackPool&) = delete;
  ~StackPool();
  unsigned char* take();
  void give(unsigned char* stack) { free_.push_back(stack); }

 private:
  std::vector<unsigned char*> all_, free_;
};

}  // namespace sim

#include "fiber.hpp"

#include <sys/mman.h>

#include <cstdint>
#include <new>

namespace sim {

#if defined(MG_SIM_OWN_SWITCH)

// The System V ABI keeps rbx, rbp and r12..r15 across a call; everything else is the caller's to save, which the compiler does.
extern "C" void mg_sim_switch(void** from, void* to);
asm(R"(
.text
.globl mg_sim_switch
.hidden mg_sim_switch
.type mg_sim_switch, @function
mg_sim_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size mg_sim_switch, .-mg_sim_switch
)");

void prepare(Context& context, unsigned char* stack, void (*entry)()) {
  auto* top = reinterpret_cast<uintptr_t*>(stack + kStackBytes);
  *--top = 0;  // entry sees its stack as after a call: 8 bytes off a multiple of 16
  *--top = reinterpret_cast<uintptr_t>(entry);
  for (int saved = 0; saved < 6; ++saved) *--top = 0;
  context.stack_pointer = top;
}

void switch_context(Context& from, Context& to) { mg_sim_switch(&from.stack_pointer, to.stack_pointer); }

#else

void prepare(Context& context, unsigned char* stack, void (*entry)()) {
  getcontext(&context.state);
  context.state.uc_stack.ss_sp = stack;
  context.state.uc_stack.ss_size = kStackBytes;
  context.state.uc_link = nullptr;
  makecontext(&context.state, entry, 0);
}

void switch_context(Context& from, Context& to) { swapcontext(&from.state, &to.state); }

#endif

namespace {
constexpr size_t kGuardBytes = 4096;
}

unsigned char* StackPool::take() {
  if (free_.empty()) {
    void* block = mmap(nullptr, kGuardBytes + kStackBytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (block == MAP_FAILED) throw std::bad_alloc();
    mprotect(block, kGuardBytes, PROT_NONE);
    all_.push_back(static_cast<unsigned char*>(block));
    free_.push_back(all_.back() + kGuardBytes);
  }
  unsigned char* stack = free_.back();
  free_.pop_back();
  return stack;
}

StackPool::~StackPool() {
  for (unsigned char* block : all_) munmap(block, kGuardBytes + kStackBytes);
}

}  // namespace sim

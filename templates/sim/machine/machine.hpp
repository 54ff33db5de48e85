// The modelled device: one launch, its CTAs, warps and threads, and who runs when.
//
// Threads are fibers. A thread runs until it must wait: for its warp (collectives), its CTA (barrier) or another CTA (a turn).
// Which thread runs first never decides whether a fault is found: shared and global memory keep, for every two bytes, who touched
// them last and what ordered that access, so a missing barrier shows in any order.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "banks.hpp"
#include "calls.hpp"
#include "fiber.hpp"
#include "global_memory.hpp"
#include "launch.hpp"
#include "report.hpp"
#include "shared_memory.hpp"

namespace sim {

constexpr int kWarp = 32;

enum class State { ready, collective, barrier, turn, done };

struct Cta;
struct Warp;

struct Thread {
  Cta* cta;
  Warp* warp;
  int index, lane;
  State state = State::ready;
  int line = 0;  // of the call it waits in
  Context context;
  unsigned char* stack = nullptr;

  std::deque<AsyncCopy> copies;  // not yet landed, oldest first
  int open_group = 0;            // number of the group that the next copy joins

  const uint32_t* turn_at = nullptr;  // host address
  uint32_t turn_value = 0;
  ThreadOrder order;
};

struct Warp {
  uint32_t arrived = 0;          // lanes waiting in the current collective
  const char* collective = "";   // its name and line
  int line = 0;
  void* operands[kWarp];         // what each lane brought: on the lane's stack
  BankCounter banks;
};

struct Cta {
  Cta(int index, int threads, int shared_bytes);
  int index;
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  SharedMemory shared;
  int waiting = 0, barrier_line = 0;  // threads in the current barrier
  int epoch = 0;                      // barriers passed
  int finished = 0;
  CtaOrder order;
};

class Machine {
 public:
  explicit Machine(const Launch& launch);
  void run();

  // For the calls of a running thread.
  Thread& thread() { return *thread_; }
  Cta& cta() { return *thread_->cta; }
  const Launch& launch() const { return launch_; }
  GlobalMemory& global() { return global_; }
  Stats& stats() { return *launch_.stats; }
  void count_step();  // stops a launch that never ends
  void fault(const Thread& thread, const char* kind, int line, const char* format, ...) __attribute__((format(printf, 5, 6)));
  [[noreturn]] void stop();  // ends the launch: no thread can go on in a defined way
  void wait(State state, int line);

  // Waits until all lanes of the warp are in the same call. The last to arrive gets the warp, works for all and calls `leave`;
  // the others get null when that is done.
  Warp* meet(const char* collective, void* operands, int line);
  void leave(Warp& warp);
  // The barrier of a CTA.
  void arrive(int line);
  BankTotals& banks() { return banks_; }

  bool completed() const { return live_.empty() && order_.empty() && !stopped_; }
  int fault_count() const { return report_.count(); }
  void deliver_conflicts(Launch& launch) const;

 private:
  static void thread_main();
  void start_next();
  bool step(Cta& cta);
  void retire(Cta& cta);
  void report_deadlock();

  const Launch& launch_;
  Report report_;
  GlobalMemory global_;
  BankTotals banks_;
  StackPool stacks_;
  std::mt19937 random_;
  std::vector<int> order_;  // CTA indices not yet started, last one first
  std::vector<std::unique_ptr<Cta>> live_;
  Context scheduler_;
  Thread* thread_ = nullptr;
  int64_t steps_ = 0;
  bool stopped_ = false;
};

extern Machine* machine;

}  // namespace sim

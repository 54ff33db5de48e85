#include "machine.hpp"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <numeric>
#include <string>

namespace sim {

Machine* machine = nullptr;

namespace {
constexpr int kShuffled = 2;
constexpr size_t kWindow = 6;  // CTAs alive at a time in shuffled order, as long as they can go on
}  // namespace

Cta::Cta(int cta_index, int thread_count, int shared_bytes)
    : index(cta_index), threads(thread_count), warps(thread_count / kWarp), shared(shared_bytes) {
  for (int i = 0; i < thread_count; ++i) {
    threads[i].cta = this;
    threads[i].warp = &warps[i / kWarp];
    threads[i].index = i;
    threads[i].lane = i % kWarp;
  }
}

Machine::Machine(const Launch& launch) : launch_(launch), report_(launch), global_(launch), random_(launch.seed), order_(launch.grid) {
  std::iota(order_.begin(), order_.end(), 0);
  if (launch.order == 0) std::reverse(order_.begin(), order_.end());  // taken from the back
  if (launch.order == kShuffled) std::shuffle(order_.begin(), order_.end(), random_);
}

void Machine::run() {
  const bool shuffled = launch_.order == kShuffled;
  while (!stopped_ && (!live_.empty() || !order_.empty())) {
    if (shuffled) std::shuffle(live_.begin(), live_.end(), random_);
    if (shuffled && live_.size() < kWindow && !order_.empty() && random_() % 2) start_next();
    bool moved = false;
    for (size_t i = 0; i < live_.size() && !moved && !stopped_; ++i) {
      Cta& cta = *live_[i];
      moved = step(cta);
      if (cta.finished == launch_.threads) retire(cta);
    }
    if (moved || stopped_) continue;
    if (!order_.empty()) start_next();
    else if (!live_.empty()) return report_deadlock();
  }
}

void Machine::start_next() {
  live_.push_back(std::make_unique<Cta>(order_.back(), launch_.threads, launch_.shared_bytes));
  order_.pop_back();
  for (Thread& thread : live_.back()->threads) {
    thread.stack = stacks_.take();
    prepare(thread.context, thread.stack, thread_main);
  }
}

void Machine::thread_main() {
  mg_sim_kernel(machine->launch_.params);
  Thread& thread = machine->thread();
  ++thread.cta->finished;
  machine->wait(State::done, 0);
}

// Lets every thread that can run do so until it waits, one warp after the other. Returns whether any could.
bool Machine::step(Cta& cta) {
  bool moved = false;
  std::vector<Warp*> warps;
  for (Warp& warp : cta.warps) warps.push_back(&warp);
  if (launch_.order == kShuffled) std::shuffle(warps.begin(), warps.end(), random_);
  for (Warp* warp : warps) {
    Thread* lanes = &cta.threads[(warp - cta.warps.data()) * kWarp];
    for (bool again = true; again && !stopped_;) {
      again = false;
      for (int lane = 0; lane < kWarp && !stopped_; ++lane) {
        Thread& thread = lanes[lane];
        if (thread.state == State::turn && *thread.turn_at == thread.turn_value) thread.state = State::ready;
        if (thread.state != State::ready) continue;
        thread_ = &thread;
        switch_context(scheduler_, thread.context);
        again = moved = true;
      }
    }
  }
  return moved;
}

void Machine::retire(Cta& cta) {
  for (Warp& warp : cta.warps) warp.banks.close(banks_);
  for (Thread& thread : cta.threads) stacks_.give(thread.stack);
  std::erase_if(live_, [&](const auto& live) { return live.get() == &cta; });
}

void Machine::wait(State state, int line) {
  Thread& thread = *thread_;
  thread.state = state;
  thread.line = line;
  switch_context(thread.context, scheduler_);
}

void Machine::stop() {
  stopped_ = true;
  switch_context(thread_->context, scheduler_);
  __builtin_unreachable();  // a stopped launch resumes nobody
}

void Machine::count_step() {
  if (++steps_ <= launch_.max_steps) return;
  fault(*thread_, "runaway", 0, "the launch made more than %lld memory accesses", static_cast<long long>(launch_.max_steps));
  stop();
}

void Machine::fault(const Thread& thread, const char* kind, int line, const char* format, ...) {
  char detail[sizeof FaultRecord::detail];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(detail, sizeof detail, format, arguments);
  va_end(arguments);
  if (!report_.add(kind, line, thread.cta->index, thread.index, detail)) stop();
}

Warp* Machine::meet(const char* collective, void* operands, int line) {
  count_step();
  Thread& thread = *thread_;
  Warp& warp = *thread.warp;
  if (warp.arrived && (warp.line != line || warp.collective != collective)) {
    fault(thread, "divergence", line, "%s of the whole warp, while other lanes of it wait in line %d (%s)", collective, warp.line, warp.collective);
    stop();
  }
  warp.collective = collective;
  warp.line = line;
  warp.operands[thread.lane] = operands;
  warp.arrived |= 1u << thread.lane;
  if (warp.arrived == ~0u) {
    warp.banks.close(banks_);
    return &warp;
  }
  wait(State::collective, line);
  return nullptr;
}

void Machine::leave(Warp& warp) {
  warp.arrived = 0;
  Thread* lanes = thread_ - thread_->lane;
  for (int lane = 0; lane < kWarp; ++lane) lanes[lane].state = State::ready;
}

void Machine::arrive(int line) {
  Cta& cta = *thread_->cta;
  count_step();
  if (cta.waiting && cta.barrier_line != line) {
    fault(*thread_, "divergent barrier", line, "cta_sync while %d threads of the CTA wait in the one of line %d", cta.waiting, cta.barrier_line);
    stop();
  }
  cta.barrier_line = line;
  if (++cta.waiting < launch_.threads) return wait(State::barrier, line);
  cta.waiting = 0;
  ++cta.epoch;
  ++stats().barriers;
  global_.pass_barrier(cta);
  for (Warp& warp : cta.warps) warp.banks.close(banks_);
  for (Thread& thread : cta.threads) thread.state = State::ready;
}

// Who waits where, CTA by CTA; said of the first CTA, at the line where most of its threads wait.
void Machine::report_deadlock() {
  for (const auto& cta : live_) {
    std::map<std::pair<State, int>, int> places;
    for (const Thread& thread : cta->threads) ++places[{thread.state, thread.line}];
    std::string text;
    int line = 0, most = 0;
    for (const auto& [place, count] : places) {
      const auto [state, where] = place;
      const char* what = state == State::done ? "have returned" : state == State::barrier ? "wait in cta_sync"
                         : state == State::turn ? "wait for their turn" : "wait for their warp";
      text += (text.empty() ? "" : ", ") + std::to_string(count) + " threads " + what;
      if (where) text += " in line " + std::to_string(where);
      if (where && count > most) most = count, line = where;
    }
    const auto waits = [](const Thread& thread) { return thread.state != State::done; };
    const auto first = std::find_if(cta->threads.begin(), cta->threads.end(), waits);
    if (!report_.add("deadlock", line, cta->index, first->index, text.c_str())) return;
  }
}

void Machine::deliver_conflicts(Launch& launch) const {
  for (const auto& [site, use] : banks_) {
    launch.stats->wavefronts += use.wavefronts;
    if (launch.conflict_count == launch.conflict_capacity) continue;
    ConflictRecord& record = launch.conflicts[launch.conflict_count++];
    record.line = site.first;
    std::snprintf(record.op, sizeof record.op, "%s", site.second.c_str());
    record.accesses = use.accesses;
    record.wavefronts = use.wavefronts;
    record.minimum = use.minimum;
  }
}

int thread_index() { return machine->thread().index; }
int block_index() { return machine->cta().index; }
int block_count() { return machine->launch().grid; }
void barrier(int line) { machine->arrive(line); }

}  // namespace sim

void mg_sim_run(sim::Launch* launch) {
  sim::Machine machine(*launch);
  sim::machine = &machine;
  machine.run();
  launch->fault_count = machine.fault_count();
  launch->completed = machine.completed();
  machine.deliver_conflicts(*launch);
  sim::machine = nullptr;
}

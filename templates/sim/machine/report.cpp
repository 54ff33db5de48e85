#include "report.hpp"

#include <cstdio>

namespace sim {

bool Report::add(const char* kind, int line, int cta, int thread, const char* detail) {
  const auto key = std::make_pair(std::string(kind), line);
  if (const auto found = index_.find(key); found != index_.end()) {
    ++found->second->count;
    return true;
  }
  FaultRecord& record = launch_.faults[index_.size()];
  std::snprintf(record.kind, sizeof record.kind, "%s", kind);
  std::snprintf(record.detail, sizeof record.detail, "%s", detail);
  record.line = line;
  record.cta = cta;
  record.thread = thread;
  record.count = 1;
  index_.emplace(key, &record);
  return count() < launch_.fault_capacity;
}

}  // namespace sim

// Collects faults, one record for each kind and line.
#pragma once
#include <map>
#include <string>
#include <utility>

#include "launch.hpp"

namespace sim {

class Report {
 public:
  explicit Report(const Launch& launch) : launch_(launch) {}
  // Returns false once there is no room for another record: the launch should end.
  bool add(const char* kind, int line, int cta, int thread, const char* detail);
  int count() const { return static_cast<int>(index_.size()); }

 private:
  const Launch& launch_;
  std::map<std::pair<std::string, int>, FaultRecord*> index_;
};

}  // namespace sim

// Bank conflicts: accesses of a warp's lanes put back together into the instructions they came from.
#pragma once
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace sim {

struct BankUse {
  int64_t accesses = 0, wavefronts = 0, minimum = 0;
};
using BankTotals = std::map<std::pair<int, std::string>, BankUse>;  // by line and operation

// Lanes of one warp run one after another, so the n-th access of each lane is matched by line: a lane's access joins the first one of
// that line, after the lane's last, that has no access of this lane yet. Closed whenever the lanes are known to be together.
class BankCounter {
 public:
  void record(const char* op, int line, int lane, uint32_t address, int bytes);
  // All lanes are at the same place: counts what was recorded.
  void close(BankTotals& totals);

 private:
  struct Access {
    const char* op;
    int line, bytes;
    uint32_t lanes = 0;
    uint32_t address[32];
    bool expects(const char* an_op, int a_line, uint32_t lane) const {
      return line == a_line && !(lanes & lane) && std::strcmp(op, an_op) == 0;
    }
  };
  std::vector<Access> open_;
  size_t next_[32] = {};  // where a lane's next access is looked for
};

// Adds one access of up to 32 lanes. Shared memory serves 128 bytes a wavefront: 32 lanes of 4 bytes, 16 of 8, or 8 of 16.
void count_wavefronts(BankUse& use, const uint32_t* address, uint32_t lanes, int bytes);

}  // namespace sim

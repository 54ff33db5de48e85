#include "banks.hpp"

#include <algorithm>
#include <cstring>

namespace sim {

void BankCounter::record(const char* op, int line, int lane, uint32_t address, int bytes) {
  const uint32_t bit = 1u << lane;
  size_t i = next_[lane];
  while (i < open_.size() && !open_[i].expects(op, line, bit)) ++i;
  if (i == open_.size()) open_.push_back({op, line, bytes, 0, {}});
  open_[i].lanes |= bit;
  open_[i].address[lane] = address;
  next_[lane] = i + 1;
}

void BankCounter::close(BankTotals& totals) {
  for (const Access& a : open_) count_wavefronts(totals[{a.line, a.op}], a.address, a.lanes, a.bytes);
  open_.clear();
  std::fill(std::begin(next_), std::end(next_), 0);
}

void count_wavefronts(BankUse& use, const uint32_t* address, uint32_t lanes, int bytes) {
  constexpr int kBanks = 32;
  const int lanes_together = 32 * 4 / std::max(bytes, 4);
  ++use.accesses;
  for (int first = 0; first < 32; first += lanes_together) {
    uint32_t words[kBanks][32];
    int depth[kBanks] = {}, deepest = 0;
    for (int lane = first; lane < first + lanes_together; ++lane) {
      if (!(lanes >> lane & 1)) continue;
      for (uint32_t word = address[lane] / 4; word <= (address[lane] + bytes - 1) / 4; ++word) {
        const int bank = word % kBanks;
        uint32_t* end = words[bank] + depth[bank];
        if (std::find(words[bank], end, word) != end) continue;  // one word serves all lanes that ask for it
        *end = word;
        deepest = std::max(deepest, ++depth[bank]);
      }
    }
    use.wavefronts += deepest;
    use.minimum += deepest > 0;
  }
}

}  // namespace sim

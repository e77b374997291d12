#pragma once

/// Counts of the drafts that an engine verified, of a response or of many.

#include <cstdint>

namespace slime {

struct DraftCounts {
  int64_t num_drafted = 0;
  int64_t num_kept = 0;   // that were what the model drew itself
  int64_t num_steps = 0;  // that drew tokens, with and without drafts
  /// Where drafts are what fast steps drew (docs/exact.md), otherwise 0: drafts before which all were kept,
  /// and those of them that were drawn otherwise.
  int64_t num_compared = 0;
  int64_t num_redrawn = 0;

  /// Of these steps: each draws one token, and those behind kept drafts.
  int64_t num_tokens() const { return num_steps + num_kept; }
  /// SGLang's names: share of the drafts that were kept, and tokens of a step; 0 of none.
  double accept_rate() const { return ratio(num_kept, num_drafted); }
  double accept_length() const { return ratio(num_tokens(), num_steps); }
  double redrawn_share() const { return ratio(num_redrawn, num_compared); }

  DraftCounts& operator+=(const DraftCounts& other) {
    num_drafted += other.num_drafted;
    num_kept += other.num_kept;
    num_steps += other.num_steps;
    num_compared += other.num_compared;
    num_redrawn += other.num_redrawn;
    return *this;
  }
  friend bool operator==(const DraftCounts&, const DraftCounts&) = default;

 private:
  static double ratio(int64_t part, int64_t whole) {
    return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
  }
};

}  // namespace slime

#pragma once

/// The two moments at which trainer and engines meet, and what requests do then that are in the
/// engines (--update-mode).

#include <string_view>

#include "roles/engines.h"
#include "rollout/rollout.h"

namespace slime::roles {

struct Handover {
  Engines& engines;
  rollout::Rollout* stream = nullptr;  // null: nothing is in the engines between two steps
  bool takes_turns = false;            // the engines stand still while training goes on
  std::string_view update_mode = "suspend";

  void before_training() const {
    if (takes_turns) make_way();
    engines.yield_to_training();
  }
  void publish(WeightVersion version, const Engines::FetchWeights& fetch) const {
    if (!takes_turns) make_way();
    engines.update_weights(version, fetch);
    if (stream != nullptr) stream->release(version);
  }
  /// In the place of publish(): the engines go on with the weights that they have.
  void go_on() const {
    if (!takes_turns) return;
    engines.go_on();
    if (stream != nullptr) stream->release(*engines.weight_version());
  }

 private:
  /// Drain and interrupt wait until nothing is in the engines.
  void make_way() const {
    if (stream != nullptr && update_mode != "suspend") stream->hold(update_mode == "interrupt");
  }
};

}  // namespace slime::roles

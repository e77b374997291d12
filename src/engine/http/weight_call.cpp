#include "engine/http/weight_call.h"

#include <utility>

namespace slime::engine {

WeightCall WeightCall::read(const FieldReader& fields) {
  return {.version_name = fields.text("weight_version", 256),
          .aborts_requests = fields.boolean("abort_all_requests").value_or(false)};
}

Expected<void> WeightCall::carry_out(ApiState& state, WeightSource source) const {
  const WeightVersion before = state.engine.weight_version();
  const WeightVersion version = before + 1;  // updates run one at a time
  state.versions.set(version, version_name.value_or(state.versions.name_of(before)));
  Expected<void> updated = state.engine.update_weights(
      {.version = version,
       .source = std::move(source),
       .running = aborts_requests ? RunningRequests::kAbort : RunningRequests::kRecompute,
       .stays_paused = keeps_pause});
  if (!updated && state.engine.weight_version() != version) state.versions.forget(version);
  return updated;
}

net::HttpResponse weight_answer(const Expected<void>& done, std::string message) {
  if (!done) message = done.error().message;
  return json_response({{"success", done.has_value()}, {"message", message}}, done ? 200 : 400);
}

}  // namespace slime::engine

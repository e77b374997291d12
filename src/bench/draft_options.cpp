#include "bench/draft_options.h"

namespace slime::bench {

engine::DraftSettings DraftOptions::settings() const {
  if (most == 0) return {};
  return {.most = most, .always = always, .forced_acceptance = acceptance};
}

double tokens_per_step(const DraftCounts& counts) {
  if (counts.num_steps == 0) return 1;
  return 1 + static_cast<double>(counts.num_kept) / static_cast<double>(counts.num_steps);
}

void put_drafts(json::object& line, const DraftOptions& options, const DraftCounts& counts) {
  if (options.most == 0) return;
  line["drafts"] = options.most;
  line["acceptance"] = options.acceptance;
  line["draft_always"] = options.always;
  line["drafted"] = counts.num_drafted;
  line["drafts_kept"] = counts.num_kept;
  line["tokens_per_step"] = tokens_per_step(counts);
}

}  // namespace slime::bench

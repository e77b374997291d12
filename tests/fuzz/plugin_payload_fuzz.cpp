// Bytes of a plug-in host as a payload, and what it says of a sample: refused, or what they say.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "core/version_runs.h"
#include "net/frame_channel.h"
#include "plugin/payload.h"
#include "plugin/read_sample.h"
#include "plugin/sample_record.h"

using namespace slime;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  try {
    const plugin::Payload payload = plugin::decode({reinterpret_cast<const char*>(data), size});
    const plugin::Payload again = plugin::decode(plugin::encode(payload));
    if (again.columns.size() != payload.columns.size()) std::abort();
    Sample sample{.prompt_length = 1};
    sample.tokens = {1, 2, 3};
    plugin::apply_changes(payload.head, payload.columns, "reward", sample);
    if (!sample.loss_mask.empty() && sample.loss_mask.size() != 2) std::abort();
  } catch (const net::FrameError&) {
  }
  try {
    const plugin::Payload payload = plugin::decode({reinterpret_cast<const char*>(data), size});
    Sample given{.prompt_length = 1};
    given.tokens = {1, 2, 3};
    given.versions = {{4, 2}};
    const Sample made = plugin::read_sample(payload.head, payload.columns, given,
                                            {.vocab_size = 100, .max_tokens = 1000});
    if (made.prompt_length < 0 || made.response_length() < 0) std::abort();
    const auto length = static_cast<std::size_t>(made.response_length());
    const auto fits = [length](std::size_t size) { return size == 0 || size == length; };
    if (!fits(made.loss_mask.size()) || !fits(made.log_probs.size())) std::abort();
    if (!made.versions.empty() && num_tokens(made.versions) != made.response_length()) std::abort();
  } catch (const net::FrameError&) {
  }
  return 0;
}

// Bytes as the Protocol Buffers message of a forward_backward: a batch or a ConfigError, nothing else.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/error.h"
#include "tinker/training_body.h"
#include "tinker/training_request.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace slime;
  using namespace slime::tinker;
  const ModelLimits limits{.vocab_size = 384, .max_positions = 256};
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    (void)read_protobuf_head(bytes);
    const TrainingBody body = read_protobuf_body(bytes, limits.vocab_size);
    const FieldReader config(body.loss_fn_config, "loss_fn_config.");
    const TokenLoss loss = make_token_loss(body.loss_fn, config, train::TrainConfig{});
    (void)read_batch(body, loss, limits);
  } catch (const ConfigError&) {
  }
  return 0;
}

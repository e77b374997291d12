#include "bench/made_up_directory.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <fstream>
#include <string>

#include "bench/workload.h"
#include "core/json.h"
#include "model/save.h"
#include "text/tokenizer/byte_tokenizer.h"

namespace slime::bench {
namespace fs = std::filesystem;

MadeUpDirectory::MadeUpDirectory(const MadeUpDirectoryOptions& options) {
  const model::ModelConfig shape = read_shape(options.shape);
  fs::create_directories(model());
  if (options.has_weights) {
    const auto network = make_up_network_on_host(shape, at::kBFloat16, kTrainingWeightBound);
    model::save_network(*network, model());
  } else {
    std::ofstream(model() / "config.json")
        << json_text(read_workloads(options.shape.file).models.at(options.shape.model));
  }
  std::ofstream(model() / "tokenizer.json") << json_text(text::byte_tokenizer());
  std::ofstream file(prompts());
  for (int64_t i = 0; i < options.prompts; ++i) {
    std::string text = fmt::format("Prompt {}: ", i);
    while (static_cast<int64_t>(text.size()) < options.prompt_tokens)
      text += static_cast<char>('a' + (i * 7 + static_cast<int64_t>(text.size()) * 13) % 26);
    file << json_text(json::object{{"input", text}}) << "\n";
  }
}

}  // namespace slime::bench

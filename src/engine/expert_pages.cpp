#include "engine/expert_pages.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "kernels/page.h"

namespace slime::engine {

int64_t expert_page_bytes(const model::Network& network) {
  const model::ModelConfig& model = network.config();
  if (!model.has_experts()) return 0;
  return kernels::kPageTokens * model.routing_width() * static_cast<int64_t>(sizeof(int16_t));
}

ExpertPages::ExpertPages(int64_t num_pages, int64_t page_tokens, int64_t width)
    : page_tokens_(page_tokens),
      width_(width),
      numbers_(at::empty({num_pages, page_tokens, width}, at::kShort)) {}

std::span<int16_t> ExpertPages::at(PageId page, int64_t slot) {
  return {numbers_.data_ptr<int16_t>() + (page * page_tokens_ + slot) * width_,
          static_cast<std::size_t>(width_)};
}

void ExpertPages::append(const CachedRows& rows, std::vector<int16_t>& out) const {
  const int64_t first = rows.begin / page_tokens_;
  out.reserve(out.size() + static_cast<std::size_t>((rows.end - rows.begin) * width_));
  for (int64_t position = rows.begin; position < rows.end; ++position) {
    const auto row = at(rows.pages[static_cast<std::size_t>(position / page_tokens_ - first)],
                        position % page_tokens_);
    out.insert(out.end(), row.begin(), row.end());
  }
}

void ExpertPages::copy_page(PageId from, PageId to) {
  const int64_t size = page_tokens_ * width_;
  std::copy_n(at(from, 0).data(), size, at(to, 0).data());
}

}  // namespace slime::engine

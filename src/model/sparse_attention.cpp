#include "model/sparse_attention.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

namespace slime::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kRows = 64;  // of queries, together

Tensor wide(const Tensor& x) {
  return x.to(x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
}

/// Rows of a segment's ancestors and its own, in the order of the sequence.
Tensor rows_of(const std::vector<Segment>& segments, std::size_t index,
               const at::TensorOptions& integers) {
  std::vector<Tensor> parts;
  for (auto i = static_cast<int64_t>(index); i >= 0;
       i = segments[static_cast<std::size_t>(i)].parent) {
    const Segment& segment = segments[static_cast<std::size_t>(i)];
    parts.push_back(at::arange(segment.begin, segment.end, integers));
  }
  std::ranges::reverse(parts);
  return at::cat(parts);
}

/// Some queries of a segment, and what they look at.
struct Part {
  int64_t begin = 0;  // among the rows with queries
  int64_t size = 0;
  Tensor row_S;
  Tensor mask_cS;
};

std::vector<Part> parts_of(const SparseRows& rows) {
  std::vector<Part> parts;
  for (std::size_t i = 0; i < rows.segments.size(); ++i) {
    const Segment& segment = rows.segments[i];
    if (!segment.has_queries) continue;
    const SegmentChoice& choice = rows.choice[i];
    for (int64_t row = segment.begin; row < segment.end; row += kRows) {
      const int64_t size = std::min(kRows, segment.end - row);
      parts.push_back({row - rows.first, size, choice.row_S,
                       choice.mask_nS.narrow(0, row - segment.begin, size)});
    }
  }
  return parts;
}

/// Rows as heads have them: [N, rows, ...].
Tensor by_head(const Tensor& x_TND) { return wide(x_TND).transpose(0, 1); }

Tensor weights(const Tensor& query_NcD, const Tensor& key_NSD, const Tensor& mask_cS,
               double scale) {
  const Tensor scores = at::bmm(query_NcD, key_NSD.transpose(1, 2)) * scale;
  return scores.masked_fill(mask_cS.logical_not(), -INFINITY).softmax(-1);
}

struct Sparse : torch::autograd::Function<Sparse> {
  static Tensor forward(AutogradContext* ctx, const Tensor& query_LND, const Tensor& key_TND,
                        const Tensor& value_TNV, const SparseRows* rows, double scale) {
    ctx->save_for_backward({query_LND, key_TND, value_TNV});
    ctx->saved_data["scale"] = scale;
    c10::List<Tensor> kept;  // the choice outlives this call alone
    std::vector<int64_t> begins;
    Tensor out_LNV =
        at::empty({query_LND.size(0), value_TNV.size(1), value_TNV.size(2)}, value_TNV.options());
    for (const Part& part : parts_of(*rows)) {
      const Tensor weight_NcS =
          weights(by_head(query_LND.narrow(0, part.begin, part.size)),
                  by_head(key_TND.index_select(0, part.row_S)), part.mask_cS, scale);
      const Tensor out_NcV = at::bmm(weight_NcS, by_head(value_TNV.index_select(0, part.row_S)));
      out_LNV.narrow(0, part.begin, part.size).copy_(out_NcV.transpose(0, 1));
      kept.push_back(part.row_S);
      kept.push_back(part.mask_cS);
      begins.push_back(part.begin);
    }
    ctx->saved_data["kept"] = kept;
    ctx->saved_data["begins"] = begins;
    return out_LNV;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const Tensor &query_LND = saved[0], &key_TND = saved[1], &value_TNV = saved[2];
    const double scale = ctx->saved_data["scale"].toDouble();
    const auto kept = ctx->saved_data["kept"].toTensorList();
    const std::vector<int64_t> begins = ctx->saved_data["begins"].toIntVector();
    const Tensor dout_LNV = grads[0];
    Tensor dquery_LND = at::zeros_like(wide(query_LND)), dkey_TND = at::zeros_like(wide(key_TND)),
           dvalue_TNV = at::zeros_like(wide(value_TNV));
    for (std::size_t i = 0; i < begins.size(); ++i) {
      const Tensor row_S = kept.get(2 * i), mask_cS = kept.get(2 * i + 1);
      const int64_t size = mask_cS.size(0);
      const Tensor query_NcD = by_head(query_LND.narrow(0, begins[i], size));
      const Tensor key_NSD = by_head(key_TND.index_select(0, row_S));
      const Tensor value_NSV = by_head(value_TNV.index_select(0, row_S));
      const Tensor dout_NcV = by_head(dout_LNV.narrow(0, begins[i], size));
      const Tensor weight_NcS = weights(query_NcD, key_NSD, mask_cS, scale);
      const Tensor dweight_NcS = at::bmm(dout_NcV, value_NSV.transpose(1, 2));
      const Tensor dscore_NcS =
          weight_NcS * (dweight_NcS - (weight_NcS * dweight_NcS).sum(-1, true)) * scale;
      dquery_LND.narrow(0, begins[i], size).copy_(at::bmm(dscore_NcS, key_NSD).transpose(0, 1));
      dkey_TND.index_add_(0, row_S, at::bmm(dscore_NcS.transpose(1, 2), query_NcD).transpose(0, 1));
      dvalue_TNV.index_add_(0, row_S,
                            at::bmm(weight_NcS.transpose(1, 2), dout_NcV).transpose(0, 1));
    }
    return {dquery_LND.to(query_LND.scalar_type()), dkey_TND.to(key_TND.scalar_type()),
            dvalue_TNV.to(value_TNV.scalar_type()), Tensor(), Tensor()};
  }
};

}  // namespace

Tensor index_scores(const Tensor& query_nJD, const Tensor& weight_nJ, const Tensor& keys) {
  const Tensor product_nJS = at::matmul(query_nJD, keys.transpose(-2, -1)).relu_();
  return at::bmm(weight_nJ.unsqueeze(1), product_nJS).squeeze(1);
}

/// A sort by digits, as GPUs have it, may tell -0 from 0; a sum with 0 is never -0.
Tensor best_tokens(const Tensor& score_nS, int64_t count) {
  return std::get<1>((score_nS + 0.0).sort(/*stable=*/true, -1, /*descending=*/true))
      .narrow(-1, 0, count);
}

TokenChoice choose_tokens(const IndexInput& index, const std::vector<Segment>& segments,
                          int64_t count, int64_t first) {
  const at::TensorOptions integers = index.key_TD.options().dtype(at::kLong);
  TokenChoice choice;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const Segment& segment = segments[i];
    SegmentChoice chosen;
    if (!segment.has_queries) {
      choice.push_back(chosen);
      continue;
    }
    chosen.row_S = rows_of(segments, i, integers);
    const int64_t size = segment.end - segment.begin, keys = chosen.row_S.size(0);
    const Tensor place_n1 = at::arange(keys - size, keys, integers).unsqueeze(1);
    chosen.mask_nS = at::arange(keys, integers).unsqueeze(0) <= place_n1;
    if (keys > count) {
      const Tensor key_SD = index.key_TD.index_select(0, chosen.row_S);
      for (int64_t row = 0; row < size; row += kRows) {
        const int64_t rows = std::min(kRows, size - row);
        Tensor mask_cS = chosen.mask_nS.narrow(0, row, rows);
        const Tensor scores =
            index_scores(index.query_TJD.narrow(0, segment.begin + row - first, rows),
                         index.weight_TJ.narrow(0, segment.begin + row - first, rows), key_SD)
                .masked_fill(mask_cS.logical_not(), -INFINITY);
        const Tensor best = best_tokens(scores, count);
        mask_cS.logical_and_(at::zeros_like(mask_cS).scatter_(1, best, true));
      }
    }
    choice.push_back(std::move(chosen));
  }
  return choice;
}

Tensor sparse_attention(const Tensor& query_LND, const Tensor& key_TND, const Tensor& value_TNV,
                        const SparseRows& rows, double scale) {
  return Sparse::apply(query_LND, key_TND, value_TNV, &rows, scale);
}

}  // namespace slime::model

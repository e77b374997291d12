#include "kernels/gpu/decode_units.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>

namespace slime::kernels {
namespace {

const DecodeOptions kH200{.group = 4, .num_kv_heads = 8, .blocks_at_once = 396};

/// Sequences over pages of their own, behind pages that they are given.
struct Batch {
  std::vector<std::vector<int32_t>> pages;
  std::vector<int64_t> lengths;

  std::vector<int32_t> fresh_pages(int64_t count) {
    std::vector<int32_t> fresh(count);
    std::iota(fresh.begin(), fresh.end(), num_pages);
    num_pages += static_cast<int32_t>(count);
    return fresh;
  }
  /// A sequence of `num_keys` tokens that begins with `prefix`.
  void add(int64_t num_keys, std::vector<int32_t> prefix = {}) {
    const auto own = fresh_pages((num_keys + 15) / 16 - static_cast<int64_t>(prefix.size()));
    prefix.insert(prefix.end(), own.begin(), own.end());
    pages.push_back(std::move(prefix));
    lengths.push_back(num_keys);
  }
  std::vector<DecodeSequence> sequences() const {
    std::vector<DecodeSequence> all;
    int64_t offset = 0;
    for (size_t s = 0; s < pages.size(); ++s) {
      const auto index = static_cast<int64_t>(s);
      all.push_back({index, index, lengths[s], pages[s], offset});
      offset += static_cast<int64_t>(pages[s].size());
    }
    return all;
  }

  int32_t num_pages = 0;
};

/// Every key of every sequence is in one segment, pages that get a key are read by nobody else,
/// records are numbered in the order of the keys, and the lists fit. Returns the pages that are
/// read.
int64_t check_plan(const DecodePlan& plan, const Batch& batch, int64_t num_launched) {
  std::vector<int32_t> flat;
  for (const auto& pages : batch.pages) flat.insert(flat.end(), pages.begin(), pages.end());
  std::map<int32_t, int64_t> next_key, next_record, times_read;
  std::vector<int32_t> fresh_pages;
  int64_t num_read = 0;
  for (const DecodeSegment& segment : plan.segments) {
    num_read += segment.num_pages;
    EXPECT_GT(segment.num_pages, 0);
    for (int p = 0; p < segment.num_pages; ++p) ++times_read[flat[segment.pages_offset + p]];
    if (segment.num_fresh == 1) {
      EXPECT_EQ(segment.num_members, 1);
      fresh_pages.push_back(flat[segment.pages_offset + segment.num_pages - 1]);
    }
    for (int m = 0; m < segment.num_members; ++m) {
      const DecodeMember& member = plan.members[segment.first_member + m];
      const auto& pages = batch.pages[member.sequence];
      EXPECT_EQ(segment.first_key, next_key[member.sequence]);
      for (int p = 0; p < segment.num_pages; ++p)
        EXPECT_EQ(flat[segment.pages_offset + p], pages[segment.first_key / 16 + p]);
      next_key[member.sequence] += (segment.num_pages - 1) * 16 + segment.last_tokens;
      EXPECT_EQ(segment.num_fresh == 1,
                next_key[member.sequence] == batch.lengths[member.sequence]);
      if (member.record < 0) {
        EXPECT_EQ(next_key[member.sequence], batch.lengths[member.sequence]);
        EXPECT_EQ(segment.first_key, 0);
      } else {
        EXPECT_EQ(member.record,
                  plan.record_starts[member.sequence] + next_record[member.sequence]++);
      }
    }
  }
  EXPECT_EQ(fresh_pages.size(), batch.pages.size());
  for (const int32_t page : fresh_pages) EXPECT_EQ(times_read[page], 1);
  for (size_t s = 0; s < batch.pages.size(); ++s) {
    const auto sequence = static_cast<int32_t>(s);
    EXPECT_EQ(next_key[sequence], batch.lengths[s]);
    EXPECT_EQ(plan.record_starts[s + 1] - plan.record_starts[s], next_record[sequence]);
  }
  EXPECT_EQ(static_cast<int64_t>(plan.record_starts.size()), num_launched + 1);
  EXPECT_LE(plan.record_starts.back(), plan.room.records);
  EXPECT_EQ(static_cast<int64_t>(plan.unit_starts.size()), plan.room.units + 1);
  EXPECT_TRUE(std::is_sorted(plan.unit_starts.begin(), plan.unit_starts.end()));
  EXPECT_EQ(plan.unit_starts.back(), static_cast<int32_t>(plan.segments.size()));
  return num_read;
}

int64_t turns_of(const DecodePlan& plan, int64_t unit) {
  int64_t iterations = 0;
  for (int32_t i = plan.unit_starts[unit]; i < plan.unit_starts[unit + 1]; ++i)
    iterations += (plan.segments[i].num_pages + 3) / 4;
  return iterations;
}

TEST(DecodeUnits, CoverEachKeyOnceInAConstantNumberOfUnits) {
  for (const auto& lengths :
       {std::vector<int64_t>{1}, {5000}, {1, 16, 17, 4096}, {128, 128, 129}, {100000, 3}}) {
    Batch batch;
    for (const int64_t length : lengths) batch.add(length);
    const DecodePlan plan = plan_decode(batch.sequences(), 4, kH200);
    EXPECT_EQ(check_plan(plan, batch, 4), batch.num_pages);
    EXPECT_EQ(plan.room.units, 49) << "396 blocks for eight heads";
  }
}

TEST(DecodeUnits, AreEquallyLong) {
  Batch batch;
  for (int i = 0; i < 256; ++i) batch.add(500 + 37 * i % 900);
  const DecodePlan plan = plan_decode(batch.sequences(), 256, kH200);
  check_plan(plan, batch, 256);
  int64_t total = 0, longest = 0;
  for (int64_t u = 0; u < plan.room.units; ++u) {
    total += turns_of(plan, u);
    longest = std::max(longest, turns_of(plan, u));
  }
  EXPECT_LE(longest, total / plan.room.units + 3);
}

TEST(DecodeUnits, OfLatentAttentionAreAsShortAsAStageOfItsPipeline) {
  Batch batch;
  batch.add(1024);
  const DecodePlan plan = plan_decode(batch.sequences(), 1, latent_decode_options(16, 132));
  EXPECT_EQ(check_plan(plan, batch, 1), 64);
  EXPECT_EQ(plan.segments.size(), 32);
  for (const DecodeSegment& segment : plan.segments) EXPECT_EQ(segment.num_pages, 2);
}

TEST(DecodeUnits, OfAGroupReadItsPromptOnce) {
  for (const int64_t group : {1, 2, 4, 8, 16}) {
    Batch batch;
    for (int prompt = 0; prompt < 4; ++prompt) {
      const auto pages = batch.fresh_pages(32);
      for (int sample = 0; sample < 8; ++sample) batch.add(512 + 20 + 7 * sample, pages);
    }
    DecodeOptions options = kH200;
    options.group = group;
    // As many sequences as 32 rows have room for.
    const int64_t times = std::max<int64_t>(1, group / 4);
    const DecodePlan plan = plan_decode(batch.sequences(), 32, options);
    const int64_t read = check_plan(plan, batch, 32);
    EXPECT_EQ(read, batch.num_pages + (times - 1) * 4 * 32) << group;
    options.shares_prompts = false;
    EXPECT_EQ(check_plan(plan_decode(batch.sequences(), 32, options), batch, 32),
              batch.num_pages + 7 * 4 * 32);
  }
}

TEST(DecodeUnits, DoNotSharePagesThatWereGivenBack) {
  Batch batch;
  const auto prompt = batch.fresh_pages(32);
  std::vector<int32_t> behind(32, -1);
  behind.insert(behind.end(), prompt.begin(), prompt.end());
  for (int sample = 0; sample < 8; ++sample) batch.add(1024 + 20 + 7 * sample, behind);
  for (const DecodeSegment& segment : plan_decode(batch.sequences(), 32, kH200).segments)
    EXPECT_EQ(segment.num_members, 1);
}

TEST(DecodeUnits, DoNotShareWhatSavesLittle) {
  Batch batch;
  const auto short_prefix = batch.fresh_pages(12), long_prefix = batch.fresh_pages(13);
  for (int i = 0; i < 2; ++i) batch.add(300, short_prefix);
  for (int i = 0; i < 2; ++i) batch.add(300, long_prefix);
  const DecodePlan plan = plan_decode(batch.sequences(), 4, kH200);
  EXPECT_EQ(check_plan(plan, batch, 4), batch.num_pages + 12)
      << "12 pages saved for two sequences do not exceed six pages each, 13 do";
}

TEST(DecodeUnits, ShareASystemPromptAndThenThePromptOfAGroup) {
  Batch batch;
  const auto system = batch.fresh_pages(20);
  for (int prompt = 0; prompt < 3; ++prompt) {
    auto pages = system;
    const auto own = batch.fresh_pages(30);
    pages.insert(pages.end(), own.begin(), own.end());
    for (int sample = 0; sample < 4; ++sample) batch.add(16 * 50 + 1 + sample, pages);
  }
  batch.add(16 * 20, system);  // its last page is being filled: not shared
  batch.pages.back().back() = batch.num_pages++;
  const DecodePlan plan = plan_decode(batch.sequences(), 16, kH200);
  // Thirteen agree on 19 pages, which takes two segments; three groups on 31 more.
  EXPECT_EQ(check_plan(plan, batch, 16), 2 * 19 + 3 * 31 + 12 + 1);
}

/// Rows of one sequence that verify drafts: row j sees `computed` + 1 + j keys.
std::vector<DecodeSequence> rows_with_drafts(const std::vector<int32_t>& pages, int64_t computed,
                                             int64_t num_rows) {
  std::vector<DecodeSequence> rows;
  for (int64_t j = 0; j < num_rows; ++j) {
    const int64_t num_keys = computed + 1 + j;
    rows.push_back({j, j, num_keys, std::span(pages).first((num_keys + 15) / 16), 0, j + 1});
  }
  return rows;
}

TEST(DecodeUnits, OfRowsThatVerifyDraftsReadOldPagesOnce) {
  std::vector<int32_t> pages(42);
  std::iota(pages.begin(), pages.end(), 0);
  // The keys of two rows go to page 40, those of two to page 41.
  const DecodePlan plan = plan_decode(rows_with_drafts(pages, 40 * 16 + 14, 4), 4, kH200);
  int64_t num_read = 0;
  for (const DecodeSegment& segment : plan.segments) num_read += segment.num_pages;
  EXPECT_EQ(num_read, 40 + 1 + 1 + 2 + 2);
}

TEST(DecodeUnits, SayWhichPagesGetKeysOfTheStep) {
  for (const int64_t group : {1, 2, 4, 8, 32}) {
    for (const int64_t old_pages : {0, 1, 6, 7, 40}) {
      for (const int64_t filled : {0, 7, 14, 15}) {
        for (const int64_t num_rows : {1, 2, 8, 12, 16}) {
          SCOPED_TRACE(::testing::Message() << group << " heads, " << old_pages << " pages and "
                                            << filled << " keys, " << num_rows << " rows");
          const int64_t computed = old_pages * 16 + filled;
          std::vector<int32_t> pages((computed + num_rows + 15) / 16);
          std::iota(pages.begin(), pages.end(), 0);
          DecodeOptions options = kH200;
          options.group = group;
          const DecodePlan plan =
              plan_decode(rows_with_drafts(pages, computed, num_rows), num_rows, options);
          std::vector<int64_t> next_key(num_rows, 0);
          for (const DecodeSegment& segment : plan.segments) {
            const int64_t begin = segment.first_key / 16, end = begin + segment.num_pages;
            EXPECT_EQ(segment.num_fresh, std::max<int64_t>(0, end - std::max(begin, old_pages)));
            for (int m = 0; m < segment.num_members; ++m) {
              const int32_t row = plan.members[segment.first_member + m].sequence;
              EXPECT_EQ(segment.first_key, next_key[row]);
              next_key[row] += (segment.num_pages - 1) * 16 + segment.last_tokens;
            }
          }
          for (int64_t row = 0; row < num_rows; ++row) EXPECT_EQ(next_key[row], computed + 1 + row);
        }
      }
    }
  }
}

/// Groups of samples that share their prompt's pages, some of them with drafts whose keys end a page: of each segment the
/// pages that any row of the step writes are among those that it names.
TEST(DecodeUnits, OfGroupsThatVerifyDraftsNameAllPagesThatAnyRowWrites) {
  for (const int64_t group : {1, 4, 16}) {
    for (const int64_t samples : {1, 3, 9}) {
      for (const int64_t most_drafts : {0, 1, 7, 15}) {
        SCOPED_TRACE(::testing::Message()
                     << group << " heads, " << samples << " samples, " << most_drafts << " drafts");
        std::vector<std::vector<int32_t>> pages;  // of each request
        std::vector<int64_t> computed, num_rows;
        int32_t next_page = 0;
        for (int64_t prompt = 0; prompt < 3; ++prompt) {
          std::vector<int32_t> shared(1 + 20 * prompt);
          std::iota(shared.begin(), shared.end(), next_page);
          next_page += static_cast<int32_t>(shared.size());
          for (int64_t i = 0; i < samples; ++i) {
            computed.push_back(16 * std::ssize(shared) + 13 * i);
            num_rows.push_back(1 + (i + prompt) % (most_drafts + 1));
            pages.push_back(shared);
            while (16 * std::ssize(pages.back()) < computed.back() + num_rows.back())
              pages.back().push_back(next_page++);
          }
        }
        std::vector<DecodeSequence> rows;
        std::vector<int32_t> flat;
        std::map<int32_t, bool> is_written;
        for (std::size_t r = 0; r < pages.size(); ++r) {
          for (int64_t j = 0; j < num_rows[r]; ++j) {
            const int64_t num_keys = computed[r] + 1 + j, row = std::ssize(rows);
            const auto seen = std::span(pages[r]).first((num_keys + 15) / 16);
            is_written[seen.back()] = true;
            rows.push_back({row, row, num_keys, seen, std::ssize(flat), j + 1});
            flat.insert(flat.end(), seen.begin(), seen.end());
          }
        }
        DecodeOptions options = kH200;
        options.group = group;
        const DecodePlan plan = plan_decode(rows, std::ssize(rows), options);
        std::map<int32_t, int64_t> next_key;
        for (const DecodeSegment& segment : plan.segments) {
          for (int32_t p = 0; p < segment.num_pages - segment.num_fresh; ++p)
            EXPECT_FALSE(is_written[flat[segment.pages_offset + p]]);
          for (int32_t m = 0; m < segment.num_members; ++m) {
            const int32_t row = plan.members[segment.first_member + m].sequence;
            EXPECT_EQ(segment.first_key, next_key[row]);
            for (int32_t p = 0; p < segment.num_pages; ++p)
              EXPECT_EQ(flat[segment.pages_offset + p],
                        rows[row].pages[segment.first_key / 16 + p]);
            next_key[row] += (segment.num_pages - 1) * 16 + segment.last_tokens;
          }
        }
        for (const DecodeSequence& row : rows)
          EXPECT_EQ(next_key[static_cast<int32_t>(row.row)], row.num_keys);
      }
    }
  }
}

TEST(DecodeUnits, OfManyShapesFitTheirRoom) {
  for (const int64_t group : {1, 3, 4, 7, 16, 32}) {
    for (const int64_t size : {2, 3, 5, 9, 17}) {
      Batch batch;
      const auto system = batch.fresh_pages(40);
      for (int i = 0; i < 60; i += static_cast<int>(size)) {
        auto pages = system;
        const auto own = batch.fresh_pages(40);
        pages.insert(pages.end(), own.begin(), own.end());
        for (int64_t s = 0; s < size; ++s) batch.add(16 * 80 + 1 + 31 * s, pages);
      }
      DecodeOptions options = kH200;
      options.group = group;
      const auto launched = static_cast<int64_t>(batch.pages.size());
      check_plan(plan_decode(batch.sequences(), launched, options), batch, launched);
    }
  }
}

}  // namespace
}  // namespace slime::kernels

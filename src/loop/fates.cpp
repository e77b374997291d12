#include "loop/fates.h"

namespace slime::loop {

void Fates::dispatched(const Group& group) {
  note({.ordinal = group.ordinal, .fate = buffer::Fate::kDispatched});
}

void Fates::partial(const Group& group) {
  note({.ordinal = group.ordinal, .fate = buffer::Fate::kPartial});
}

void Fates::filtered(const Group& group, const std::string& reason) {
  note({.ordinal = group.ordinal, .fate = buffer::Fate::kFiltered, .reason = reason});
}

void Fates::failed(const Group& group, const std::string& reason) {
  note({.ordinal = group.ordinal, .fate = buffer::Fate::kFailed, .reason = reason});
}

void Fates::trained(const std::vector<buffer::LedgerRecord>& records) {
  const std::shared_ptr<void> lease = lend_ ? lend_() : nullptr;
  for (const buffer::LedgerRecord& record : records) note(record);
}

void Fates::note(const buffer::LedgerRecord& record) {
  if (!owns_prompts_) return;
  const auto known = ledger_->state().find(record.ordinal);
  if (known != ledger_->state().end() && known->second.fate == record.fate) return;
  ledger_->append(record);
}

}  // namespace slime::loop

// One step of beam search: ranks the continuations of each text's hypotheses.

struct Beams {  // as in beams.py; by slot, one hypothesis in each
  const float* top;           // [slots, columns]: log-probabilities of the best next tokens, descending
  const int64_t* top_tokens;  // [slots, columns]
  int64_t columns;
  double* so_far;    // log-probability of each hypothesis
  int64_t* tokens;   // newest token of each
  int64_t* history;  // [slots, longest]: its tokens
  int64_t longest;
  const int32_t* positions;  // number of its tokens
  const int64_t* ends;       // tokens that end a text
  int64_t end_count;
  int64_t *best_slots, *best_tokens;  // of the texts that do not go on here, one after the other
  double* best_totals;
  Copy* forks;  // of the positions where hypotheses that are overwritten differed
};

struct Text {
  int64_t running, width;  // hypotheses: now, and from the next step on
  int64_t count;           // of continuations to rank, then of those that there are
  int64_t goes_on;         // may go on here, then whether it has
  int64_t* slots() { return reinterpret_cast<int64_t*>(this + 1); }  // [width]
};

struct Continuation {
  int64_t slot, token;
  double total;  // log-probability of the hypothesis with the token
};

// Merges the hypotheses' lists; of equal continuations that of the first hypothesis is the better one.
int64_t rank(const Beams& beams, Text& text, std::vector<int64_t>& heads, std::vector<Continuation>& best) {
  heads.assign(text.running, 0);
  best.clear();
  const int64_t columns = std::min(beams.columns, text.count);
  while (static_cast<int64_t>(best.size()) < text.count) {
    int64_t chosen = -1;
    double most = 0;
    for (int64_t i = 0; i < text.running; i++) {
      if (heads[i] == columns) continue;
      const int64_t slot = text.slots()[i];
      const double total = beams.so_far[slot] + beams.top[slot * beams.columns + heads[i]];
      if (chosen < 0 || total > most) chosen = i, most = total;
    }
    if (chosen < 0) break;
    const int64_t slot = text.slots()[chosen];
    best.push_back({slot, beams.top_tokens[slot * beams.columns + heads[chosen]++], most});
  }
  return best.size();
}

// A hypothesis with several continuations keeps its slot for the first; the others take slots of hypotheses without any.
int64_t go_on(const Beams& beams, Text& text, const std::vector<Continuation>& best, Copy* forks) {
  Copy* const start = forks;
  std::vector<int64_t> targets(text.width);
  const auto goes_on = [&](int64_t slot, int64_t count) {
    return std::any_of(best.begin(), best.begin() + count, [&](const Continuation& each) { return each.slot == slot; });
  };
  for (int64_t i = 0, spare = text.width; i < text.width; i++) {
    const int64_t source = best[i].slot;
    targets[i] = source;
    if (!goes_on(source, i)) continue;
    while (goes_on(text.slots()[--spare], text.width)) {
    }
    const int64_t target = targets[i] = text.slots()[spare], length = beams.positions[source];
    const int64_t *from = beams.history + source * beams.longest, *end = from + length;
    int64_t* to = beams.history + target * beams.longest;
    const int64_t parted = std::mismatch(from, end, to).first - from;
    std::copy(from + parted, end, to + parted);
    *forks++ = {source, parted + 1, target, parted + 1, length - parted};  // position 0 holds the start, which tokens follow
  }
  for (int64_t i = 0; i < text.width; i++) {
    const int64_t slot = text.slots()[i] = targets[i];
    beams.tokens[slot] = beams.history[slot * beams.longest + beams.positions[slot]] = best[i].token;
    beams.so_far[slot] = best[i].total;
  }
  return forks - start;
}

// Ranks the continuations of texts, and lets those go on that may and of whose best continuations none ends. Returns the number of forks.
int64_t extend(const Beams& beams, int64_t* texts, int64_t count) {
  std::vector<int64_t> heads;
  std::vector<Continuation> best;
  int64_t forks = 0, listed = 0;
  for (int64_t i = 0; i < count; i++) {
    Text& text = *reinterpret_cast<Text*>(texts);
    texts = text.slots() + text.width;
    text.count = rank(beams, text, heads, best);
    const auto ends = [&](const Continuation& each) {
      return std::find(beams.ends, beams.ends + beams.end_count, each.token) != beams.ends + beams.end_count;
    };
    text.goes_on = text.goes_on && text.count >= text.width && std::none_of(best.begin(), best.begin() + text.width, ends);
    if (text.goes_on) {
      forks += go_on(beams, text, best, beams.forks + forks);
      continue;
    }
    for (const Continuation& each : best) {
      beams.best_slots[listed] = each.slot, beams.best_tokens[listed] = each.token;
      beams.best_totals[listed++] = each.total;
    }
  }
  return forks;
}

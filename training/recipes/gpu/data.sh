# Sentence pairs of all translation recipes: DATA (compressed pairs, English first) -> $work/data, a file for every direction.
#
# Sentences of the validation sets are removed from all training sets: the French pairs contain English sentences of the German validation set.

valid_de=$DATA/tatoeba.en-de.valid.tsv.gz
valid_fr=$DATA/tatoeba.en-fr.valid.tsv.gz
sets=(tatoeba docs-gnome docs-moz)
data=$work/data

if [[ ! -e $data/done ]]; then
  mkdir -p "$data"
  held_out "$valid_de" "$valid_fr" >"$data/held-out.txt"
  for other in de fr; do
    cp "$DATA/tatoeba.en-$other.valid.tsv.gz" "$data/valid.en-$other.tsv.gz"
    reversed "$DATA/tatoeba.en-$other.valid.tsv.gz" "$data/valid.$other-en.tsv.gz"
    for set in "${sets[@]}"; do
      file=$DATA/$set.en-$other.tsv.gz
      [[ $set == tatoeba ]] && file=$DATA/tatoeba.en-$other.train.tsv.gz
      without "$data/held-out.txt" "$file" "$data/$set.en-$other.tsv.gz"
      reversed "$data/$set.en-$other.tsv.gz" "$data/$set.$other-en.tsv.gz"
    done
  done
  touch "$data/done"
fi

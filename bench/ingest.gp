# ingest.gp - plot of bench/ingest.sh: gnuplot -e "dir='build/bench'" bench/ingest.gp
# ingest.tsv: hosts, profiles/s, samples/s, bytes per profile
set terminal svg size 720,720 font "sans-serif,12" background rgb "white"
set output dir."/ingest.svg"
set multiplot layout 3,1 title "What the store takes, by simulated hosts"
set grid ytics lc rgb "#dddddd"
set logscale x
set yrange [0:*]
set xrange [7:1500]
set format y "%.0f"
set nokey
set lmargin 12

set ylabel "profiles/s"
plot dir."/ingest.tsv" using 1:2:xtic(1) with linespoints pt 7 lc rgb "#2c3e50"
set ylabel "samples/s"
plot dir."/ingest.tsv" using 1:3:xtic(1) with linespoints pt 7 lc rgb "#2c3e50"
set ylabel "bytes/profile"
set xlabel "hosts, each with one profile of 120 samples under way"
plot dir."/ingest.tsv" using 1:4:xtic(1) with linespoints pt 7 lc rgb "#c0392b"
unset multiplot

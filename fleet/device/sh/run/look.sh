# After conditions.sh: one look.
fl_before
echo end
